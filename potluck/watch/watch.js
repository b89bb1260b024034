// What has been heard, what is looked at, and when the page was last told anything.

import { make } from "./charts.js";
import { GroupView } from "./panels.js";

const SILENCE = 15000; // milliseconds without a word from the server
const heard = { page: null };
const view = { group: null, run: null, axis: "time", shown: null, node: null };
let last = Date.now(), ended = false, planned = false;

const find = (id) => document.getElementById(id);

function pick(group, run) {
  Object.assign(view, { group, run });
  history.replaceState(null, "", `#${[group, run].filter(Boolean).join("/")}`);
  plan();
}

function plan() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    render();
  });
}

function render() {
  const { page } = heard;
  tellLink();
  if (!page) return;
  find("root").textContent = page.root;
  const groups = page.groups.filter((key) => heard[key] && heard[key].runs.every((run) => heard[run]));
  const main = find("main");
  if (!groups.length) {
    const what = page.there ? "No run is in this folder yet. It appears here as soon as it has begun." : "This folder isn't there yet. Its runs appear here as soon as they have begun.";
    Object.assign(view, { node: null, shown: null });
    main.replaceChildren(make("p", { class: "soft" }, what), ...listProblems(page));
    find("groups").hidden = true;
    return;
  }
  const key = groups.includes(view.group) ? view.group : groups[0], group = heard[key];
  const states = group.runs.map((run) => heard[run].state);
  const first = group.runs[Math.max(0, states.indexOf("running"))];
  const run = group.runs.includes(view.run) ? view.run : first;
  if (view.shown !== key) {
    view.node = new GroupView((chosen) => pick(key, chosen), (axis) => {
      view.axis = axis;
      plan();
    });
    view.shown = key;
  }
  if (view.node.node.parentNode !== main) main.replaceChildren(view.node.node);
  view.node.show(key, group, heard, run, view.axis);
  main.replaceChildren(view.node.node, ...listProblems(page));
  listGroups(groups, key);
  document.title = `${Math.floor(100 * group.done)} % · ${group.title} · Potluck`;
}

function listProblems(page) {
  const problems = page.spoiled.map((text) => make("p", { class: "warning" }, text));
  if (page.left_out) problems.push(make("p", { class: "warning" }, "There are more runs here than are shown: name a folder below."));
  return problems;
}

function listGroups(groups, chosen) {
  const nav = find("groups");
  nav.hidden = groups.length < 2;
  if (nav.hidden) return;
  nav.replaceChildren(...groups.map((key) => {
    const group = heard[key], running = group.runs.some((run) => heard[run].state === "running");
    const stopped = group.runs.some((run) => ["stopped", "damaged", "silent"].includes(heard[run].state));
    const state = running ? "running" : stopped ? "stopped" : group.done === 1 ? "finished" : "starting";
    const fill = make("span", { class: "fill" });
    fill.style.width = `${100 * group.done}%`;
    const words = make("span", { class: "soft" }, `${Math.floor(100 * group.done)} %, ${state === "starting" ? "getting ready" : state}`);
    const button = make("button", { type: "button", "aria-current": key === chosen }, make("b", {}, group.title), make("span", { class: "soft where" }, group.where), words,
      make("span", { class: "bar", "data-state": state }, fill));
    button.title = group.path;
    button.addEventListener("click", () => pick(key, null));
    return button;
  }));
}

function tellLink() {
  const link = find("link"), lost = !ended && Date.now() - last > SILENCE;
  const at = new Date(last).toLocaleTimeString();
  document.body.classList.toggle("over", ended || lost);
  link.dataset.state = ended ? "ended" : lost ? "lost" : "live";
  link.textContent = ended ? `over: as it was when the command ended, ${at}` : lost ? `not connected since ${at}; is potluck watch still running?` : "live";
}

function follow() {
  const events = new EventSource("events");
  events.onmessage = (event) => {
    last = Date.now();
    ended = false;
    const news = JSON.parse(event.data);
    if (Object.keys(news).length === 0) return;
    Object.assign(heard, news);
    plan();
  };
  events.addEventListener("end", () => {
    ended = true;
    events.close();
    plan();
  });
  setInterval(tellLink, 1000);
}

[view.group, view.run] = location.hash.slice(1).split("/");
follow();

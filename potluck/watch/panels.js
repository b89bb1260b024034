// The parts of the page: made once for what is looked at, then given what is new.

import { Chart, make } from "./charts.js";

const NONE = "–";
const STATES = {
  waiting: "waiting", starting: "getting ready", running: "running", silent: "silent", stopped: "stopped",
  finished: "finished", damaged: "can't be read",
};
const AXES = { time: "virtual time", sent: "traffic", round: "rounds" };
const GREY = "#8a8a92";
const FEW = 4; // groups

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [size, unit, below, smaller] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / below);
    return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
  }
  return `${whole} s`;
}

export function size(count) {
  if (!count) return count === 0 ? "0 B" : NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; count >= 999.5 && i < units.length - 1; i++) count /= 1000;
  return `${count.toFixed(i === 0 || count >= 99.5 ? 0 : 1)} ${units[i]}`;
}

export const percent = (share) => (share === null ? NONE : `${(100 * share).toFixed(1)} %`);
const number = (value) => (value === null ? NONE : Number(value.toPrecision(3)).toLocaleString("en"));
const whole = (value) => (value ?? 0).toLocaleString("en");

function dot(colour) {
  const it = make("span", { class: "dot" });
  it.style.background = colour;
  return it;
}

// Text changes only where it differs, so that whoever selects or reads it isn't disturbed.
function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

class Bar {
  constructor(label) {
    this.fill = make("span", { class: "fill" });
    this.node = make("span", { class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill);
  }

  show(share, state) {
    this.node.setAttribute("aria-valuenow", Math.floor(100 * share));
    this.node.dataset.state = state;
    this.fill.style.width = `${100 * share}%`;
  }
}

const COLUMNS = ["run", "state", "progress", "accuracy", "worst 10 %", "round", "virtual time", "at work", "lost tasks", "traffic", ""];

class Row {
  constructor(pick) {
    this.name = make("button", { type: "button", class: "plain" });
    this.dot = dot(GREY);
    this.pill = make("span", { class: "pill" });
    this.bar = new Bar("share of the way to its end");
    this.share = make("span", { class: "share" });
    this.cells = COLUMNS.map((label) => make("td", { "data-label": label }));
    this.cells[0].append(this.dot, this.name);
    this.cells[1].append(this.pill);
    this.cells[2].append(this.bar.node, this.share);
    this.link = make("a", { target: "_blank", rel: "noopener" });
    this.cells[10].append(this.link);
    this.node = make("tr", {}, ...this.cells);
    this.node.addEventListener("click", (event) => event.target !== this.link && pick());
  }

  show(id, run, chosen) {
    this.node.classList.toggle("chosen", chosen);
    this.name.setAttribute("aria-pressed", chosen);
    this.dot.style.background = run.colour;
    set(this.name, `${run.arm}, seed ${run.seed}`);
    this.pill.dataset.state = run.state;
    set(this.pill, STATES[run.state] ?? run.state);
    this.pill.title = run.why ?? "";
    this.bar.show(run.done ?? 0, run.state);
    const more = run.left ? `, ${run.left} left` : run.took ? `, took ${run.took}` : "";
    set(this.share, run.state === "waiting" ? "" : `${Math.floor(100 * run.done)} %${more}`);
    const working = run.crowd?.working.at(-1), busy = ["running", "silent"].includes(run.state) && working !== undefined;
    const lost = Object.entries(run.lost ?? {}).map(([why, count]) => `${whole(count)} ${why}`).join(", ");
    const sent = Object.values(run.sent ?? {}).reduce((sum, each) => sum + each, 0);
    const texts = run.state === "waiting" ? Array(7).fill("") : [
      percent(run.accuracy), percent(run.worst), whole(run.round), duration(run.time),
      busy ? `${whole(working)} of ${whole(run.crowd.online.at(-1))}` : NONE, lost || "none", size(sent || null),
    ];
    texts.forEach((text, i) => {
      set(this.cells[3 + i], text);
      this.cells[3 + i].classList.toggle("idle", text === NONE || text === "none");
    });
    this.link.hidden = id === null || !run.points?.accuracy.length;
    if (!this.link.hidden) {
      this.link.href = `report/${id}`;
      set(this.link, run.state === "finished" ? "report" : "report so far");
    }
  }
}

class Card {
  constructor(title, ...parts) {
    this.text = make("p", { class: "soft" });
    this.node = make("section", { class: "card" }, make("h3", {}, title), this.text, ...parts);
  }
}

// Who is at work, groups and traffic of one run.
class Details {
  constructor() {
    this.title = make("h3");
    this.why = make("p", { class: "warning", hidden: "" });
    this.remarks = make("ul", { class: "remarks" });
    this.crowd = new Chart("Devices at work, online and away over virtual time");
    this.groups = new Chart("Devices in each group over virtual time");
    this.traffic = new Chart("Bytes up and down over virtual time");
    this.notes = make("div", { class: "wide notes" });
    this.splits = make("ul", { class: "plain" });
    this.groupKeys = make("p", { class: "keys" });
    this.crowdKeys = make("p", { class: "keys" });
    this.trafficKeys = make("p", { class: "keys" });
    this.cards = {
      crowd: new Card("Who is at work", this.crowdKeys, this.crowd.node),
      groups: new Card("The life of groups", this.groupKeys, this.groups.node, this.splits, this.notes),
      traffic: new Card("Traffic", this.trafficKeys, this.traffic.node),
    };
    this.node = make("section", { class: "details" }, this.title, this.why, this.remarks,
      make("div", { class: "cards" }, ...Object.values(this.cards).map((card) => card.node)));
  }

  show(run) {
    this.node.hidden = !run;
    if (!run) return;
    this.title.replaceChildren(dot(run.colour), `${run.arm}, seed ${run.seed}`);
    this.why.hidden = !run.why;
    const again = ["stopped", "silent"].includes(run.state) ? " potluck resume goes on with it: " : " ";
    set(this.why, `${STATES[run.state]}: ${run.why}.${again}${run.path}`);
    this.remarks.replaceChildren(...run.remarks.map((text) => make("li", { class: "warning" }, text)));
    this.showCrowd(run);
    this.showGroups(run);
    this.showTraffic(run);
  }

  showCrowd(run) {
    const { time, devices, online, working } = run.crowd, card = this.cards.crowd;
    card.node.hidden = !time.length && run.state !== "running";
    const lost = Object.entries(run.lost).map(([why, count]) => `${whole(count)} ${why}`).join(", ");
    const so = `${whole(run.tasks)} tasks answered; lost: ${lost || "none"}.`;
    if (!time.length) return set(card.text, so);
    const away = devices.at(-1) - online.at(-1), idle = Math.max(0, online.at(-1) - working.at(-1));
    const now = run.state === "finished" ? "At the last look" : "Now";
    set(card.text, `${now} ${whole(working.at(-1))} at work, ${whole(idle)} online and idle, ${whole(away)} away. ${so}`);
    const series = [
      { name: "at work", colour: "#44AA99", y: working },
      { name: "online, idle", colour: "#88AADD", y: online.map((n, i) => Math.max(0, n - working[i])) },
      { name: "away", colour: GREY, faint: true, y: devices.map((n, i) => n - Math.max(online[i], working[i])) },
    ].filter((s) => s.y.some((n) => n > 0)).map((s) => ({ ...s, x: time }));
    this.crowdKeys.replaceChildren(...series.map((s) => make("span", {}, dot(s.colour), s.name)));
    this.crowd.node.hidden = time.length < 2;
    this.crowd.show({ series, kind: "time", yLabel: "devices", stacked: true, small: true, tellY: whole });
  }

  showGroups(run) {
    const { time, series } = run.groups, card = this.cards.groups;
    const noted = run.notes.length > 0, parted = series.length > 1 || run.splits.length > 0;
    card.node.hidden = !noted && !parted;
    if (card.node.hidden) return;
    const last = series.filter((s) => s.y.at(-1) > 0).map((s) => `${s.name}: ${whole(s.y.at(-1))}`).join(", ");
    set(card.text, parted && last ? `Devices in each group now: ${last}.` : "What groups noted last.");
    this.groupKeys.replaceChildren(...(parted ? series.map((s) => make("span", {}, dot(s.colour), s.name)) : []));
    this.groups.node.hidden = !parted || time.length < 2;
    const end = Math.max(run.time, time.at(-1) ?? 0), held = series.map((s) => ({ ...s, x: [...time, end], y: [...s.y, s.y.at(-1)] }));
    if (!this.groups.node.hidden) this.groups.show({ series: held, kind: "time", yLabel: "devices", stacked: true, small: true, tellY: whole });
    this.splits.replaceChildren(...run.splits.slice(-8).map((s) => make("li", {}, `${duration(s.time)}: ${s.group} split into ${s.into.join(", ")}`)));
    this.notes.hidden = !noted;
    const names = [...new Set(run.notes.flatMap((note) => Object.keys(note.groups)))];
    names.sort(new Intl.Collator("en", { numeric: true }).compare);
    const cell = (note, name) => make("td", {}, name in note.groups ? number(note.groups[name]) : NONE);
    const few = names.length <= FEW; // then they are columns: what was noted takes more words
    const head = few ? names : run.notes.map((note) => note.what);
    const rows = few ? run.notes.map((note) => [note.what, names.map((name) => cell(note, name))])
      : names.map((name) => [name, run.notes.map((note) => cell(note, name))]);
    this.notes.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, make("th", {}, few ? "" : "group"), ...head.map((text) => make("th", {}, text)))),
      make("tbody", {}, ...rows.map(([text, cells]) => make("tr", {}, make("td", {}, text), ...cells)))));
  }

  showTraffic(run) {
    const card = this.cards.traffic, { time, up, down } = run.traffic;
    const told = Object.entries(run.sent).filter(([, count]) => count).map(([name, count]) => `${name} ${size(count)}`);
    card.node.hidden = !told.length && time.length < 2;
    set(card.text, told.length ? `${told.join(", ")}.` : "");
    this.traffic.node.hidden = time.length < 2;
    const series = [{ name: "down", colour: "#CC6677", x: time, y: down }, { name: "up", colour: "#44AA99", x: time, y: up }];
    this.trafficKeys.replaceChildren(...(time.length < 2 ? [] : series.map((s) => make("span", {}, dot(s.colour), s.name))));
    this.traffic.show({ series, kind: "time", yLabel: "sent so far", yKind: "sent", stacked: true, slopes: true, small: true, tellY: size });
  }
}

// A comparison, or runs of one crowd.
export class GroupView {
  constructor(pickRun, pickAxis) {
    this.pickRun = pickRun;
    this.rows = new Map();
    this.hidden = new Set();
    this.title = make("h2");
    this.about = make("p", { class: "soft" });
    this.link = make("a", { class: "open", target: "_blank", rel: "noopener" });
    this.bar = new Bar("share of all runs that is done");
    this.share = make("span", { class: "share" });
    this.verdict = make("p", { class: "verdict" });
    this.remarks = make("ul", { class: "remarks" });
    this.axes = Object.entries(AXES).map(([axis, name]) => {
      const button = make("button", { type: "button", "data-axis": axis }, name);
      button.addEventListener("click", () => pickAxis(axis));
      return button;
    });
    this.keys = make("div", { class: "keys" });
    this.race = new Chart("Mean accuracy over devices");
    this.note = make("p", { class: "soft" });
    this.body = make("tbody");
    this.details = new Details();
    this.node = make("article", {},
      make("div", { class: "head" }, this.title, this.link), this.about,
      make("p", { class: "whole" }, this.bar.node, this.share), this.verdict, this.remarks,
      make("section", { class: "card" },
        make("div", { class: "tools" }, make("h3", {}, "Accuracy"), make("div", { class: "axes", role: "group", "aria-label": "over what" }, ...this.axes)),
        this.keys, this.race.node, this.note),
      make("section", { class: "card runs" }, make("h3", {}, "Runs"),
        make("div", { class: "wide" }, make("table", {}, make("thead", {}, make("tr", {}, ...COLUMNS.map((name) => make("th", {}, name)))), this.body))),
      this.details.node);
  }

  show(id, group, runs, chosen, axis) {
    set(this.title, group.title);
    set(this.about, group.about);
    const states = [...group.runs.map((key) => runs[key].state), ...group.waiting.map(() => "waiting")];
    const counts = Object.keys(STATES).map((state) => [states.filter((each) => each === state).length, STATES[state]]);
    this.bar.show(group.done, !states.includes("running") && states.some((state) => ["stopped", "silent", "damaged"].includes(state)) ? "stopped" : "running");
    set(this.share, `${Math.floor(100 * group.done)} % of ${states.length === 1 ? "a run" : `${states.length} runs`}: ${counts.filter(([n]) => n).map(([n, name]) => `${n} ${name}`).join(", ")}`);
    set(this.verdict, group.verdict);
    this.verdict.hidden = !group.verdict;
    this.remarks.replaceChildren(...group.remarks.map((text) => make("li", { class: "warning" }, text)));
    this.link.hidden = !group.runs.some((key) => runs[key].points.accuracy.length);
    this.link.href = `report/${id}`;
    set(this.link, states.every((state) => state === "finished") ? "open the report" : "report so far");
    for (const button of this.axes) button.setAttribute("aria-pressed", button.dataset.axis === axis);
    this.showRace(group, runs, axis);
    this.showRows(group, runs, chosen);
    this.details.show(runs[chosen]);
  }

  showRace(group, runs, axis) {
    const redo = () => this.showRace(group, runs, axis), series = [];
    this.keys.replaceChildren(...group.curves.map((curve) => {
      const { y } = curve.axes[axis], off = this.hidden.has(curve.name);
      const key = make("button", { type: "button", class: "key", "aria-pressed": !off }, dot(curve.colour), `${curve.name} `, make("b", {}, y.length ? `${y.at(-1).toFixed(1)} %` : NONE));
      key.addEventListener("click", () => {
        if (off) this.hidden.delete(curve.name);
        else this.hidden.add(curve.name);
        redo();
      });
      return key;
    }));
    for (const key of group.runs) {
      const run = runs[key], many = (group.curves.find((curve) => curve.name === run.arm)?.axes[axis].runs ?? 0) > 1;
      if (!this.hidden.has(run.arm)) {
        const own = { x: run.points[axis], y: run.points.accuracy, colour: run.colour, live: run.state === "running" };
        series.push({ ...own, name: run.arm, thin: many });
      }
    }
    for (const curve of group.curves) {
      if (curve.axes[axis].runs > 1 && !this.hidden.has(curve.name)) series.push({ ...curve.axes[axis], name: curve.name, colour: curve.colour });
    }
    this.race.show({ series, kind: axis, yLabel: "mean accuracy over devices (%)", yUnit: "%", target: group.target === null ? null : 100 * group.target });
    const banded = group.curves.some((curve) => curve.axes[axis].runs > 1);
    set(this.note, banded ? "Thick: the mean over seeds, as far as all of them are; shaded: from the least to the greatest. Thin: each seed." : "");
  }

  showRows(group, runs, chosen) {
    const order = group.curves.map((curve) => curve.name);
    const rows = [...group.runs.map((key) => [key, key, runs[key]]),
      ...group.waiting.map((each) => [null, `${each.arm}-${each.seed}`, { ...each, state: "waiting", why: "it hasn't begun", done: 0 }])];
    rows.sort(([, , a], [, , b]) => order.indexOf(a.arm) - order.indexOf(b.arm) || a.seed - b.seed);
    for (const [id, key] of rows) if (!this.rows.has(key)) this.rows.set(key, new Row(() => id && this.pickRun(id)));
    const nodes = rows.map(([id, key, run]) => {
      const row = this.rows.get(key);
      row.show(id, run, id !== null && id === chosen);
      return row.node;
    });
    if (nodes.length !== this.body.children.length || nodes.some((node, i) => node !== this.body.children[i])) this.body.replaceChildren(...nodes);
  }
}

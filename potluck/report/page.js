// Unpacks plotly and figures, draws them, and lets them follow the page: dark or light, its width, a sheet of paper.
"use strict";
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%.()*+-;,=:?@^_`{|}~";
const ORDER = new Uint8Array(128);
[...ALPHABET].forEach((letter, place) => { ORDER[letter.charCodeAt(0)] = place; });

async function unpack(id) {
  const text = document.getElementById(id).textContent.trim();
  const words = new DataView(new ArrayBuffer(text.length / 5 * 4));
  for (let i = 0, at = 0; i < text.length; i += 5, at += 4) {
    let word = 0;
    for (let j = 0; j < 5; j++) word = word * 85 + ORDER[text.charCodeAt(i + j)];
    words.setUint32(at, word);
  }
  const flow = new DecompressionStream("deflate");
  const writer = flow.writable.getWriter();
  const length = Number(document.getElementById(id).dataset.bytes);
  writer.write(new Uint8Array(words.buffer, 0, length));
  writer.close();
  return new Response(flow.readable).text();
}

// Nothing leaves the page: plotly's own bar would offer to send the data to its makers.
const CONFIG = {displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: ""};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 40rem)");
const wide = window.matchMedia("(min-width: 64rem)");

function readInk() {
  return getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
}

// A line of text as two, where a phone is too narrow for it.
function fold(text, most = 46) {
  const at = text.length > most ? text.lastIndexOf(" ", most) : -1;
  return at < 0 ? text : text.slice(0, at) + "<br>" + text.slice(at + 1);
}

function show(section, choice) {
  const {figure, csv, hint, file} = choice;
  const plot = section.querySelector(".plotly-graph-div");
  const small = narrow.matches;
  const {data, layout} = structuredClone(figure);
  layout.font = {...layout.font, color: readInk(), size: small ? 11 : layout.font.size};
  if (small) {
    layout.margin = {...layout.margin, l: 44, r: 8, b: 48};
    for (const bar of data.map(trace => trace.colorbar ?? trace.marker?.colorbar).filter(Boolean))
      Object.assign(bar, {thickness: 10, xpad: 4});
    for (const told of layout.annotations ?? [])
      Object.assign(told, {font: {...told.font, size: 11}, text: fold(told.text), align: told.xanchor});
  }
  const link = section.querySelector(".data");
  link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(csv);
  link.download = file;
  section.querySelector(".hint").textContent = hint;
  return Plotly.react(plot, data, layout, {...CONFIG, displayModeBar: small ? false : undefined});
}

function paint(change) {
  for (const plot of document.querySelectorAll(".plotly-graph-div"))
    Plotly.relayout(plot, {"font.color": readInk(), ...change});
}

async function begin() {
  if (typeof DecompressionStream === "undefined") {
    document.getElementById("old").hidden = false;
    return;
  }
  const [library, text] = await Promise.all([unpack("plotly"), unpack("figures")]);
  const script = document.createElement("script");
  script.textContent = library;
  document.head.append(script);
  const figures = JSON.parse(text);
  const sections = [...document.querySelectorAll("section[data-figure]")];
  const showAll = () => Promise.all(sections.map(section => {
    const at = section.querySelector("select")?.selectedIndex ?? 0;
    return show(section, figures[section.dataset.figure][at]);
  }));
  for (const section of sections)
    section.querySelector("select")?.addEventListener("change", event =>
      show(section, figures[section.dataset.figure][event.target.selectedIndex]));
  await showAll();
  dark.addEventListener("change", () => paint({}));
  narrow.addEventListener("change", showAll);
  addEventListener("beforeprint", () => paint({"font.color": "#1c1c1e", width: 680, autosize: false}));
  addEventListener("afterprint", () => paint({width: null, autosize: true}));
  document.body.dataset.drawn = sections.length;
}

function followContents() {
  const contents = document.querySelector("nav details");
  if (!contents) return;
  const fold = () => { contents.open = wide.matches; };
  fold();
  wide.addEventListener("change", fold);
  const links = [...contents.querySelectorAll("a")];
  links.forEach(link => link.addEventListener("click", () => { if (!wide.matches) contents.open = false; }));
  const places = links.map(link => document.getElementById(link.hash.slice(1)));
  const mark = () => {
    const ended = innerHeight + scrollY >= document.documentElement.scrollHeight - 2; // the last can't come up
    const at = ended ? places.length - 1 : places.findLastIndex(place => place.getBoundingClientRect().top < 120);
    links.forEach((link, i) => link.toggleAttribute("aria-current", i === Math.max(at, 0)));
  };
  addEventListener("scroll", mark, {passive: true});
  mark();
}

followContents();
begin();

// Lines with bands and stacked areas, drawn as SVG into whatever room there is. All text is set as text.

const SVG = "http://www.w3.org/2000/svg";
const DAY = 86400, HOUR = 3600, MINUTE = 60;

export function make(tag, attributes = {}, ...children) {
  const it = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) it.setAttribute(name, value);
  it.append(...children);
  return it;
}

function draw(tag, attributes, text = "") {
  const it = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) it.setAttribute(name, value);
  it.textContent = text;
  return it;
}

// Seconds, bytes and rounds as an axis has them: what one unit is, and its name.
export function pickUnit(kind, longest) {
  const known = {
    time: [[DAY, "days"], [HOUR, "hours"], [MINUTE, "minutes"], [1, "seconds"]],
    sent: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]],
    round: [[1, "rounds"]],
  }[kind];
  return known.find(([length]) => longest >= 2 * length) ?? known[known.length - 1];
}

function listTicks(low, high, most) {
  const rough = (high - low) / Math.max(1, most) || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step + 0); // no -0
  return { ticks, step };
}

function tell(value, step) {
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// The last value at or before a place, or what lies on the line between two.
function find(series, x, steps) {
  const i = series.x.findLastIndex((each) => each <= x);
  if (i < 0 || (i === series.x.length - 1 && x > series.x[i] && !steps)) return null;
  if (steps || i === series.x.length - 1) return series.y[i];
  const share = (x - series.x[i]) / (series.x[i + 1] - series.x[i] || 1);
  return series.y[i] + share * (series.y[i + 1] - series.y[i]);
}

const join = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");

// A figure that is drawn again whenever its data, its room or the reader's pointer change.
export class Chart {
  constructor(label) {
    this.label = label;
    this.svg = draw("svg", { role: "img", "aria-label": label });
    this.tip = make("div", { class: "tip", hidden: "" });
    this.node = make("div", { class: "chart" }, this.svg, this.tip);
    this.at = null;
    this.node.addEventListener("pointermove", (event) => this.point(event.clientX));
    this.node.addEventListener("pointerdown", (event) => this.point(event.clientX));
    this.node.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.data && this.redraw()).observe(this.node);
  }

  point(clientX) {
    this.at = clientX === null ? null : clientX - this.node.getBoundingClientRect().left;
    if (this.data) this.showTip();
  }

  // kind: of the x axis; series: x, y, name and colour, perhaps low and high; stacked: areas,
  // one on the other, that change at once unless they have slopes.
  show(data) {
    this.data = data;
    this.redraw();
  }

  redraw() {
    const { series, kind, yLabel, target = null, stacked = false, small = false, yUnit = "" } = this.data;
    const width = this.node.clientWidth;
    if (!width) return;
    const height = small ? 230 : Math.round(Math.min(400, Math.max(240, width * 0.5)));
    const xs = series.flatMap((s) => s.x), longest = Math.max(0, ...xs);
    const [size, unit] = pickUnit(kind, longest);
    let low = 0, high = 1;
    if (stacked) {
      const tops = (series[0]?.x ?? []).map((_, i) => series.reduce((sum, s) => sum + s.y[i], 0));
      high = Math.max(1, ...tops);
    } else {
      const ys = series.flatMap((s) => [...s.y, ...(s.low ?? []), ...(s.high ?? [])]);
      if (target !== null && ys.length) ys.push(target);
      low = 10 * Math.floor(Math.min(...ys, 100) / 10);
      high = Math.min(100, 10 * Math.ceil((Math.max(...ys, low) + 1e-9) / 10));
      if (high <= low) high = low + 10;
    }
    const yScale = this.data.yKind ? pickUnit(this.data.yKind, high) : [1, ""];
    const y = listTicks(low / yScale[0], high / yScale[0], Math.max(4, height / 45));
    const texts = y.ticks.map((each) => tell(each, y.step));
    const left = 14 + 7.2 * Math.max(...texts.map((text) => text.length)), right = 14, top = 24, bottom = 40;
    const place = {
      x: (value) => left + ((width - left - right) * value) / (longest || 1),
      y: (value) => height - bottom - ((height - top - bottom) * (value - low)) / (high - low),
      back: (pixel) => ((pixel - left) / (width - left - right)) * (longest || 1),
    };
    this.place = place;
    this.box = { left, right: width - right, top, bottom: height - bottom, width, size, unit, yUnit };
    const parts = [draw("text", { x: 2, y: 12, class: "label" }, yScale[1] ? `${yLabel} (${yScale[1]})` : yLabel)];
    y.ticks.forEach((each, i) => {
      const at = place.y(each * yScale[0]);
      parts.push(draw("line", { x1: left, x2: width - right, y1: at, y2: at, class: "grid" }));
      parts.push(draw("text", { x: left - 6, y: at + 4, class: "tick", "text-anchor": "end" }, texts[i]));
    });
    if (longest > 0) {
      const x = listTicks(0, longest / size, Math.max(2, Math.floor((width - left - right) / 70)));
      for (const each of x.ticks) {
        const at = place.x(each * size);
        const anchor = at > width - right - 12 ? "end" : "middle";
        parts.push(draw("text", { x: anchor === "end" ? width - 2 : at, y: height - bottom + 17, class: "tick", "text-anchor": anchor }, tell(each, x.step)));
        parts.push(draw("line", { x1: at, x2: at, y1: height - bottom, y2: height - bottom + 4, class: "grid" }));
      }
    }
    const names = { time: "virtual time", sent: "traffic, up and down", round: "rounds" };
    const xLabel = kind === "round" ? "rounds (changes of the model)" : `${names[kind]} (${unit})`;
    parts.push(draw("text", { x: (left + width - right) / 2, y: height - 5, class: "label", "text-anchor": "middle" }, xLabel));
    if (stacked) this.drawStack(parts, series);
    else this.drawLines(parts, series);
    if (target !== null) {
      const at = place.y(target);
      parts.push(draw("line", { x1: left, x2: width - right, y1: at, y2: at, class: "target" }));
      parts.push(draw("text", { x: width - right - 2, y: at + (at > height / 2 ? -6 : 15), class: "tick", "text-anchor": "end" }, `target ${tell(target, 0.1).replace(".0", "")} %`));
    }
    this.cross = draw("line", { y1: top, y2: height - bottom, class: "cross", visibility: "hidden" });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.svg.replaceChildren(...parts, this.cross);
    this.showTip();
  }

  drawLines(parts, series) {
    const { place } = this;
    for (const s of series) {
      if (!s.low || s.runs < 2) continue;
      const upper = s.x.map((x, i) => [place.x(x), place.y(s.high[i])]);
      const lower = s.x.map((x, i) => [place.x(x), place.y(s.low[i])]).reverse();
      if (upper.length) parts.push(draw("path", { d: `M${join([...upper, ...lower])}Z`, fill: s.colour, opacity: 0.16 }));
    }
    for (const s of series) {
      if (!s.x.length) continue;
      const d = `M${join(s.x.map((x, i) => [place.x(x), place.y(s.y[i])]))}`;
      const style = s.thin ? { "stroke-width": 1, opacity: 0.55 } : { "stroke-width": 2.5 };
      parts.push(draw("path", { d, fill: "none", stroke: s.colour, "stroke-linejoin": "round", ...style }));
      const end = { cx: place.x(s.x[s.x.length - 1]), cy: place.y(s.y[s.y.length - 1]), fill: s.colour };
      if (s.live) parts.push(draw("circle", { ...end, r: 4, class: "live" }));
      else if (s.x.length === 1) parts.push(draw("circle", { ...end, r: 3 }));
    }
  }

  drawStack(parts, series) {
    const { place } = this;
    const base = (series[0]?.x ?? []).map(() => 0);
    for (const s of series) {
      const upper = [], lower = [];
      s.x.forEach((x, i) => {
        const until = place.x(this.data.slopes ? x : s.x[i + 1] ?? x);
        upper.push([place.x(x), place.y(base[i] + s.y[i])], [until, place.y(base[i] + s.y[i])]);
        lower.push([place.x(x), place.y(base[i])], [until, place.y(base[i])]);
        base[i] += s.y[i];
      });
      if (upper.length) parts.push(draw("path", { d: `M${join([...upper, ...lower.reverse()])}Z`, fill: s.colour, class: s.faint ? "faint" : "area" }));
    }
  }

  showTip() {
    const { at, box, place } = this;
    const inside = at !== null && box && at >= box.left - 4 && at <= box.right + 4;
    const x = inside ? Math.max(0, place.back(at)) : 0;
    const found = !inside ? [] : this.data.series.filter((s) => !s.thin)
      .map((s) => ({ ...s, value: find(s, x, this.data.stacked) })).filter((s) => s.value !== null);
    this.tip.hidden = found.length === 0;
    this.cross?.setAttribute("visibility", found.length ? "visible" : "hidden");
    if (!found.length) return;
    if (!this.data.stacked) found.sort((a, b) => b.value - a.value);
    for (const name of ["x1", "x2"]) this.cross.setAttribute(name, at);
    const told = this.data.tellY ?? ((value) => `${tell(value, 0.1)} ${box.yUnit}`);
    const head = make("div", { class: "soft" }, `${tell(x / box.size, (box.right - box.left) / 1e5 < 1 ? 0.1 : 1)} ${box.unit}`);
    this.tip.replaceChildren(head, ...found.slice(0, 12).map((s) => {
      const dot = make("span", { class: "dot" });
      dot.style.background = s.colour;
      return make("div", {}, dot, `${s.name} `, make("b", {}, told(s.value)));
    }));
    const half = this.tip.offsetWidth / 2;
    this.tip.style.left = `${Math.max(half, Math.min(box.width - half, at))}px`;
  }
}

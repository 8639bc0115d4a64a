"use strict";
// Draws the page of a run from the report that is in it. Whatever comes from the data is set as text,
// never as markup.
const { report, title, version, made } = JSON.parse(document.getElementById("data").textContent);
const { wait, fetch: requests, plots } = report;
const points = plots.points;
const byId = (id) => document.getElementById(id);

function element(name, words, attributes = {}) {
  const made = document.createElement(name);
  if (words !== undefined) made.textContent = words;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function shape(name, attributes, words) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (words !== undefined) made.textContent = words;
  return made;
}

// ── numbers as people read them ──────────────────────────────
const whole = (value) => Math.round(value).toLocaleString("en");
function short(value) {
  if (value === 0) return "0";
  for (const [unit, by] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (Math.abs(value) >= by) return trim(value / by) + " " + unit;
  return trim(value);
}
const trim = (value) => String(Number(value.toPrecision(3)));
function seconds(value) {
  if (value === 0) return "0";
  if (value >= 5400) return trim(value / 3600) + " h";
  if (value >= 90) return trim(value / 60) + " min";
  if (value >= 1) return trim(value) + " s";
  return value >= 1e-3 ? trim(value * 1e3) + " ms" : trim(value * 1e6) + " µs";
}
const share = (value) => Number((value * 100).toFixed(value < 0.0995 ? 1 : 0)) + " %";
function bytes(value) {
  for (const [unit, by] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024]]) if (value >= by) return trim(value / by) + " " + unit;
  return trim(value) + " B";
}

const CLOCK = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

// ── one plot ─────────────────────────────────────────────────
/** Round steps of an axis up to `most`; of time, what is round on a clock. */
function ticks(most, count, isTime) {
  const rough = most / count, power = 10 ** Math.floor(Math.log10(rough));
  let step = power * [1, 2, 5, 10].find((times) => power * times >= rough * 0.999);
  if (isTime && step > 10) step = CLOCK.find((round) => round >= rough) ?? 86400 * Math.ceil(rough / 86400);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, n) => n * step);
}

/**
 * `edges` are where the points begin, and where the last one ends; `series` have a name, a colour, how
 * they are drawn and a value for each point. Areas are stacked on each other. `x` and `y` tell a value
 * in words.
 */
function plot({ heading, note, edges, series, x, y, most, log, label }) {
  const panel = element("figure", undefined, { class: "panel" });
  panel.append(element("h3", heading));
  const caption = element("p", note, { class: "reading", "aria-live": "off" });
  panel.append(caption);
  if (series.length > 1) {
    const key = element("div", undefined, { class: "key" });
    for (const one of series) key.append(element("span", one.name, { style: `--swatch: var(--${one.colour})` }));
    panel.append(key);
  }
  const canvas = shape("svg", { role: "img", "aria-label": `${heading}: ${note}`, "data-points": edges.length - 1 });
  panel.append(canvas);
  const stacked = [], bottom = edges.slice(1).map(() => 0);
  for (const one of series) {
    const low = one.draw === "area" ? [...bottom] : bottom.map(() => 0);
    if (one.draw === "area") one.values.forEach((value, n) => { bottom[n] += value; });
    stacked.push(low);
  }
  const tops = series.flatMap((one, s) => one.values.map((value, n) => value + stacked[s][n]));
  const top = most ?? (Math.max(...tops, 0) * 1.05 || 1);
  const at = log ? Math.log : (value) => value;
  const [from, to] = [at(edges[0]), at(edges[edges.length - 1])];

  function draw() {
    const width = Math.max(panel.clientWidth - 36, 200), height = Math.round(Math.min(230, 120 + width / 9));
    const [left, right, over, under] = [50, 8, 8, 22];
    const X = (value) => left + (width - left - right) * ((at(value) - from) / (to - from || 1));
    const Y = (value) => over + (height - over - under) * (1 - value / top);
    const f = (value) => value.toFixed(1);
    canvas.replaceChildren();
    canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    for (const tick of ticks(top, 4)) {
      canvas.append(shape("line", { class: "grid", x1: left, x2: width - right, y1: f(Y(tick)), y2: f(Y(tick)) }));
      canvas.append(shape("text", { x: left - 7, y: f(Y(tick) + 4), "text-anchor": "end" }, y(tick)));
    }
    const marks = log ? decades(edges[0], edges[edges.length - 1], width / 90) : ticks(edges[edges.length - 1], Math.max(3, width / 110), x === seconds);
    let free = 0;
    for (const tick of marks) {
      // A step is called one once.
      const words = x === stepName && free > 0 ? whole(tick) : x(tick), half = words.length * 3.1, middle = X(tick);
      if (tick < edges[0] || middle - half < free) continue;
      const anchor = middle + half > width ? "end" : middle - half < left ? "start" : "middle";
      canvas.append(shape("text", { x: f(anchor === "end" ? width : middle), y: height - 5, "text-anchor": anchor }, words));
      free = middle + half + 12;
    }
    series.forEach((one, s) => {
      const colour = { style: `--colour: var(--${one.colour})`, "data-series": one.name };
      const steps = one.values.map((value, n) => {
        const [a, b] = [f(X(edges[n])), f(X(edges[n + 1]))], low = Math.min(stacked[s][n], top), high = f(Y(Math.min(value + low, top)));
        if (one.draw === "line") return `${n ? "L" : "M"}${f((+a + +b) / 2)} ${high}`;
        if (one.draw === "mark") return `M${a} ${high}H${b}`;
        const gap = one.draw === "bar" && b - a > 4 ? 0.7 : 0;
        return value > 0 ? `M${f(+a + gap)} ${f(Y(low))}V${high}H${f(+b - gap)}V${f(Y(low))}z` : `M${a} ${f(Y(low))}`;
      });
      const kind = ["line", "mark"].includes(one.draw) ? one.draw : "";
      canvas.append(shape("path", { ...colour, class: kind, d: steps.join("") }));
    });
    const cursor = shape("line", { class: "cursor", y1: over, y2: height - under, visibility: "hidden" });
    canvas.append(cursor);
    canvas.onpointermove = canvas.onpointerdown = (event) => {
      const place = ((event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth) * width;
      let n = edges.findIndex((edge) => X(edge) > place) - 1;
      if (n === -2) n = edges.length - 2;
      n = Math.max(n, 0);
      const middle = f((X(edges[n]) + X(edges[n + 1])) / 2);
      for (const side of ["x1", "x2"]) cursor.setAttribute(side, middle);
      cursor.setAttribute("visibility", "visible");
      const values = series.map((one) => (series.length > 1 ? one.name + " " : "") + y(one.values[n]));
      caption.textContent = `${(label ?? x)(edges[n], edges[n + 1])}: ${values.join(", ")}`;
    };
    canvas.onpointerleave = () => {
      cursor.setAttribute("visibility", "hidden");
      caption.textContent = note;
    };
  }
  drawn.push([panel, draw]);
  return panel;
}
/** Powers of ten and what is between them, as many as there is room for. */
function decades(low, high, most) {
  for (const within of [[1, 2, 5], [1, 3], [1]]) {
    const marks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1)
      for (const times of within) if (times * 10 ** power >= low && times * 10 ** power <= high) marks.push(times * 10 ** power);
    if (marks.length <= most || within.length === 1) return marks;
  }
}
const drawn = [];
function section(heading, note, panels) {
  const some = panels.filter(Boolean);
  if (!some.length) return;
  const group = element("div", undefined, { class: "panels" });
  group.append(...some);
  byId("plots").append(element("h2", heading), element("p", note, { class: "note" }), group);
}

// ── what the run was ─────────────────────────────────────────
const sum = (list) => list.reduce((all, one) => all + one, 0);
const along = (list) => list.reduce((edges, one) => [...edges, edges[edges.length - 1] + one], [0]);
const over = (parts, wholes) => parts.map((part, n) => (wholes[n] > 0 ? part / wholes[n] : 0));
if (title) {
  byId("over").textContent = `stoker · ${title}`;
  document.title = `${title}: who waited for whom`;
}
byId("headline").textContent = wait.ratio === null ? "Too short to tell who waited" : wait.ratio < 0.005
  ? "The trainer hardly waited" : `The trainer waited ${share(wait.ratio)} of its time`;
const why = report.advice?.words ?? "too few batches were handed over to say why";
byId("lead").textContent = why[0].toUpperCase() + why.slice(1) + (why.endsWith(".") ? "" : ".");
const facts = [
  ["batches", whole(wait.batches + (wait.first_batch_seconds === null ? 0 : 1))],
  ["samples", whole(report.samples)],
  ["images", whole(report.images)],
  ["tokens", short(report.tokens)],
  ["time", seconds(wait.wall_seconds)],
  ["blocked", seconds(wait.blocked_seconds)],
  ["first batch after", wait.first_batch_seconds === null ? "–" : seconds(wait.first_batch_seconds)],
  ["workers", whole(report.workers)],
];
for (const [name, value] of facts) {
  const fact = element("div");
  fact.append(element("dt", name), element("dd", value));
  byId("facts").append(fact);
}


// Over time, steps that came in a burst are one point: their rate by themselves says nothing.
const least = sum(points.wall_seconds) / 150;
const groups = points.wall_seconds.reduce((all, time, n) => {
  const last = all[all.length - 1];
  if (last && (last.time < least || time < least / 10)) {
    last.time += time;
    last.end = n + 1;
  } else all.push({ time, begin: n, end: n + 1 });
  return all;
}, []);
if (groups.length > 1 && groups[groups.length - 1].time < least) {
  const last = groups.pop(), before = groups[groups.length - 1];
  [before.time, before.end] = [before.time + last.time, last.end];
}
const timed = (list) => groups.map(({ begin, end }) => sum(list.slice(begin, end)));
const wall = timed(points.wall_seconds), clock = along(wall);
const stepEdges = along(points.steps).map((steps) => steps + 2);
const stepName = (n) => "step " + whole(n);
const stepSpan = (a, b) => (b - a > 1 ? `steps ${whole(a)} to ${whole(b - 1)}` : stepName(a));
const timeSpan = (a, b) => `${seconds(a)} to ${seconds(b)}`;
const has = points.steps.length > 0;
const each = plots.steps_each;
const latest = wait.window_seconds ?? [];
const count = wait.batches;

section("Wait per step", "How long each step was blocked in next(). The first batch, for which every loader waits, is left out.", [
  has && each > 1 && plot({
    heading: "The whole run", note: `means of ${each} steps, and the longest wait among them`, edges: stepEdges, x: stepName, y: seconds, label: stepSpan,
    series: [
      { name: "mean", colour: "wait", draw: "bar", values: over(points.blocked_seconds, points.steps) },
      { name: "longest", colour: "ember", draw: "mark", values: points.longest_seconds },
    ],
  }),
  latest.length > 0 && plot({
    heading: latest.length < count ? `The last ${whole(latest.length)} steps` : "Each step",
    note: `median ${seconds(wait.p50_seconds)}, 95 % below ${seconds(wait.p95_seconds)}, 99 % below ${seconds(wait.p99_seconds)}`,
    edges: [...latest.keys(), latest.length].map((n) => n + count - latest.length + 2), x: stepName, y: seconds, label: stepSpan,
    series: [{ name: "wait", colour: "wait", draw: "bar", values: latest }],
  }),
]);

const rate = (heading, unit, list, values = timed(list)) => has && sum(values) > 0 && plot({
  heading, note: `${short(sum(values) / sum(wall))} ${unit} in the mean`, edges: clock, x: seconds, label: timeSpan,
  y: (value) => short(value), series: [{ name: heading, colour: "ember", draw: "line", values: over(values, wall) }],
});
section("Throughput", "What came to the trainer, from the first batch on.", [
  rate("Images per second", "images/s", points.images),
  rate("Tokens per second", "tokens/s", points.tokens),
  sum(points.images) === 0 && rate("Samples per second", "samples/s", points.samples),
]);

const cores = wall.map((time) => time * report.workers);
const [busy, decoding, resizing, asking] = [points.worker_seconds, points.decode_seconds, points.resize_seconds, points.request_seconds].map(timed);
const rest = busy.map((all, n) => Math.max(all - decoding[n] - resizing[n], 0));
section("What the stages were at", "Shares of the time of all workers; and requests that were on their way to and from the store.", [
  has && sum(busy) > 0 && report.workers > 0 && plot({
    heading: "Workers", note: `busy ${share(Math.min(sum(busy) / sum(cores), 1))} of the time of ${whole(report.workers)}`,
    edges: clock, x: seconds, y: share, label: timeSpan, most: 1,
    series: [
      { name: "decode", colour: "decode", draw: "area", values: over(decoding, cores) },
      { name: "resize and patchify", colour: "resize", draw: "area", values: over(resizing, cores) },
      { name: "text and all else", colour: "other", draw: "area", values: over(rest, cores) },
    ],
  }),
  has && sum(asking) > 0 && plot({
    heading: "Requests in flight", note: `${trim(sum(asking) / sum(wall))} in the mean, ${bytes(sum(points.bytes) / sum(wall))}/s`,
    edges: clock, x: seconds, y: short, label: timeSpan,
    series: [{ name: "requests in flight", colour: "ember", draw: "line", values: over(asking, wall) }],
  }),
]);

const counts = plots.first_byte_counts, fine = plots.first_byte_per_doubling;
section("Latency of the store", "From a request to the first byte of its good answer.", [
  counts.length > 0 && plot({
    heading: "Requests by time to first byte", log: true, x: seconds, y: short, label: timeSpan,
    note: `median ${seconds(requests.first_byte_p50_seconds)}, 95 % below ${seconds(requests.first_byte_p95_seconds)}, 99 % below ${seconds(requests.first_byte_p99_seconds)}`,
    edges: [...counts.keys(), counts.length].map((n) => plots.first_byte_from_seconds * 2 ** (n / fine)),
    series: [{ name: "requests", colour: "wait", draw: "bar", values: counts }],
  }),
]);

const tokens = points.tokens.map((some, n) => some + points.padding[n]);
section("Padding", "Tokens of padding and of neutral images, for which the device computes as for others.", [
  has && sum(tokens) > 0 && plot({
    heading: "Share of tokens that are padding", note: `${share(sum(points.padding) / sum(tokens))} of all` + (report.packing === null ? "" : `; ${share(report.packing)} of pack.max-tokens is used`),
    edges: stepEdges, x: stepName, y: share, label: stepSpan, most: Math.max(0.01, ...over(points.padding, tokens)) * 1.05,
    series: [{ name: "padding", colour: "wait", draw: "area", values: over(points.padding, tokens) }],
  }),
]);

function row(table, cells) {
  const line = element("tr");
  cells.forEach((cell, n) => line.append(element(n ? "td" : "th", cell)));
  byId(table).tBodies[0].append(line);
}
for (const room of report.rooms) row("rooms", [room.room, seconds(room.busy_seconds), whole(room.items), room.bytes ? bytes(room.bytes) : "–"]);
for (const flaw of report.flaws) row("flaws", [`${flaw.room}/${flaw.code}`, flaw.outcome, whole(flaw.samples)]);
for (const bad of report.bad_samples) byId("latest").append(element("li", bad));
byId("bad").hidden = report.flaws.length + report.bad_samples.length === 0;
byId("made").textContent = `stoker ${version}, ${new Date(made * 1000).toLocaleString()}`;

const redraw = () => drawn.forEach(([, draw]) => draw());
redraw();
new ResizeObserver(redraw).observe(byId("plots"));

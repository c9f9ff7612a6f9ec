// The figures of this moment, each above its last five minutes.

import { makeChart } from "./chart.js";
import { count, percent, rate, time, timeParts } from "./format.js";
import { $, element } from "./page.js";

const SMOOTH = 5; // seconds: counts of single seconds jump too much to be looked at

/** The mean of each value and the four before it. */
const smooth = (values) => values.map((_, index) => {
  const some = values.slice(Math.max(0, index - SMOOTH + 1), index + 1);
  return some.reduce((sum, value) => sum + value, 0) / some.length;
});

const percentiles = (name) => ({
  names: ["p50", "p95"],
  format: time,
  floor: 0.001,
  series: (series) => [series[`${name}_p50_s`], series[`${name}_p95_s`]],
  value: (recent) => timeParts(recent[`${name}_p50_s`]),
  note: (recent) => `p95 ${time(recent[`${name}_p95_s`])}`,
  about: "Of the last ten seconds in which there were any: the middle p50, the highest p95",
});

const CARDS = [
  {
    id: "requests", title: "Requests", names: [""], format: (value) => `${rate(value)}/s`, floor: 1,
    series: ({ requests }) => [smooth(requests)],
    value: ({ requests_per_s: value }) => [rate(value), "per second"],
    note: ({ requests }) => `${count(requests)} in the last minute`,
  },
  {
    id: "errors", title: "Errors", names: [""], format: (value) => `${rate(value)}/s`, floor: 1,
    series: ({ errors }) => [smooth(errors)],
    value: ({ requests, errors }) => [percent(requests && errors / requests), ""],
    note: ({ requests, errors }) => `${count(errors)} of ${count(requests)} in the last minute`,
  },
  {
    id: "queue", title: "Queue", names: [""], format: count, floor: 5,
    series: ({ queue_depth: depth }) => [depth],
    value: ({ waiting }) => [count(waiting), "waiting"],
    note: ({ running }) => `${count(running)} running`,
  },
  {
    id: "tokens", title: "Tokens", names: [""], format: (value) => `${rate(value)}/s`, floor: 10,
    series: ({ tokens }) => [smooth(tokens)],
    value: ({ tokens_per_s: value }) => [rate(value), "per second"],
    note: () => "Generated, mean of 10 s",
  },
  { id: "ttft", title: "Time to first token", ...percentiles("ttft") },
  { id: "itl", title: "Time between tokens", ...percentiles("itl") },
];

function build({ id, title, names, format, floor, series, value, note, about = "" }) {
  const chart = makeChart({ label: title, names, format, floor });
  const number = element("b", "", "–");
  const unit = element("span", "unit");
  const small = element("p", names.length > 1 ? "remark second" : "remark", "\u00a0");
  const amount = element("p", "amount", ...(names.length > 1 ? [element("span", "key", names[0])] : []), number, unit);
  const card = element("section", "card", element("h3", "", title), amount, small, chart.node);
  card.id = `card-${id}`;
  card.title = about;
  const show = (live) => {
    [number.textContent, unit.textContent] = value(live.recent);
    small.textContent = note(live.recent);
    chart.show(series(live.series), live.series.until);
  };
  return { card, show };
}

/** Builds all cards; returns what shows a live document in them. */
export function makeCards() {
  const cards = CARDS.map(build);
  $("cards").replaceChildren(...cards.map(({ card }) => card));
  return (live) => cards.forEach(({ show }) => show(live));
}

// The answers of tasks other than tagging, each as its readers know it: classes, answers in their passage, choices, relations.
import { make, span } from "./dom.js";
import { words } from "./state.js";

const HIDDEN = ["id", "text", "coverage", "passage", "question", "best", "probabilities", "choices", "null_score", "sentences", "head", "tail", "relation", "texts", "label", "labels", "score"];

/** Show a record. */
export function showAnswer(record) {
  const parts = [headline(record), passage(record), bars(record), rest(record)].filter(Boolean);
  return make("div", { className: "answer" }, ...parts);
}

function headline(record) {
  const score = typeof record.score === "number" && record.score >= 0 && record.score <= 1 ? `${(100 * record.score).toFixed(1)} %` : "";
  const said = said_of(record);
  return said === null ? null : make("p", { className: "headline" }, make("strong", { textContent: said }), " ", span("dim", score));
}

function said_of(record) {
  if ("relation" in record) return `${record.head.text} → ${record.relation} → ${record.tail.text}`;
  if ("label" in record) return record.label;
  if ("labels" in record) return record.labels.length > 0 ? record.labels.join(", ") : words().no_label;
  if ("value" in record) return record.value.toFixed(4);
  if ("choice" in record) return `${record.choice}. ${record.text}`;
  if ("null_score" in record) return record.text || words().no_answer;
  if ("finished" in record) return record.text;
  return null;
}

/** A passage or a text with the answer, the two entities or the chosen sentences marked. */
function passage(record) {
  const text = record.passage ?? record.text;
  const spans = record.sentences ?? (record.head ? [record.head, record.tail] : record.passage && record.start !== undefined && record.start !== null ? [record] : []);
  if (typeof text !== "string" || spans.length === 0) return null;
  const points = Array.from(text);
  const sorted = [...spans].sort((a, b) => a.start - b.start);
  const nodes = [];
  let at = 0;
  for (const { start, end } of sorted.filter((each) => each.start !== null)) {
    nodes.push(points.slice(at, start).join(""), make("mark", { className: "c0 w3", textContent: points.slice(start, end).join("") }));
    at = end;
  }
  return make("p", { className: "text" }, ...nodes, points.slice(at).join(""));
}

/** Shares of classes, choices or other answers, the highest first. */
function bars(record) {
  const rows = record.probabilities ? Object.entries(record.probabilities)
    : record.choices ? record.choices.map(({ text, probability }) => [text, probability])
    : record.best ? record.best.filter(({ score }) => score >= 0 && score <= 1).map(({ text, score }) => [text, score]) : [];
  if (rows.length === 0) return null;
  const body = [...rows].sort((a, b) => b[1] - a[1]).map(([name, share]) => make("tr", {},
    make("th", { scope: "row", textContent: name }),
    make("td", {}, make("meter", { min: 0, max: 1, value: share, aria: { label: name } })),
    make("td", { className: "number", textContent: `${(100 * share).toFixed(1)} %` })));
  return make("table", { className: "bars", aria: { label: words().answer } }, make("tbody", {}, ...body));
}

/** Whatever else a record has, by its names. */
function rest(record) {
  const rows = Object.entries(record).filter(([name, value]) => !HIDDEN.includes(name) && !["value", "choice", "start", "end", "finished"].includes(name) && value !== null);
  if (rows.length === 0) return null;
  return make("table", {}, make("tbody", {}, ...rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row", textContent: name }), make("td", {}, plain(value))))));
}

function plain(value) {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : value.toFixed(4);
  if (Array.isArray(value) && typeof value[0] === "number") return `${value.slice(0, 6).map(plain).join(", ")}${value.length > 6 ? " …" : ""}`;
  return typeof value === "string" ? value : JSON.stringify(value);
}

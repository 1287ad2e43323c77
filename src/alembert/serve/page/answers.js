// The answers of tasks other than tagging, each as its readers know it: classes, answers in their passage, choices, relations.
import { make, span } from "./dom.js";
import { words } from "./state.js";
import { whyButton } from "./why.js";

const HIDDEN = ["id", "text", "coverage", "passage", "question", "best", "probabilities", "choices", "null_score", "sentences", "head", "tail", "relation", "texts", "label", "labels", "score"];

/** Show a record; `asked` is what was asked, none if nobody can say why: a model, an input and perhaps a task. */
export function showAnswer(record, asked) {
  const explained = make("div", { className: "explained" });
  const why = (place, name, isGiven) => (asked ? whyButton({ ...asked, ...place }, name, isGiven, explained) : null);
  const parts = [headline(record, why), passage(record), bars(record, why), sentences(record, why), rest(record)].filter(Boolean);
  return make("div", { className: "answer" }, ...parts, explained);
}

/** What was answered; it has a button of its own if it stands in no table. */
function headline(record, why) {
  const score = typeof record.score === "number" && record.score >= 0 && record.score <= 1 ? `${(100 * record.score).toFixed(1)} %` : "";
  const said = saidOf(record);
  const button = "value" in record || record.start === null ? why({}, said, true) : null;
  return said === null ? null : make("p", { className: "headline" }, make("strong", { textContent: said }), " ", span("dim", score), " ", button);
}

function saidOf(record) {
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
function bars(record, why) {
  const rows = options(record).sort((a, b) => b.share - a.share);
  if (rows.length === 0) return null;
  const body = rows.map(({ name, share, place, isGiven }) => make("tr", {},
    make("th", { scope: "row", textContent: name }),
    make("td", {}, make("meter", { min: 0, max: 1, value: share, aria: { label: name } })),
    make("td", { className: "number", textContent: `${(100 * share).toFixed(1)} %` }),
    make("td", {}, why(place, name, isGiven))));
  return make("table", { className: "bars", aria: { label: words().answer } }, make("tbody", {}, ...body));
}

/** What might be answered: its name, its share, the label or the span that it is asked about by, and whether it is the answer. */
function options(record) {
  const { probabilities, choices, best } = record;
  const given = record.labels ?? [record.relation ?? record.label];
  if (probabilities) return Object.entries(probabilities).map(([name, share]) => ({ name, share, place: { label: name }, isGiven: given.includes(name) }));
  if (choices) return choices.map(({ choice, text, probability }) => ({ name: text, share: probability, place: { label: String(choice) }, isGiven: choice === record.choice }));
  const shares = (best ?? []).filter(({ score }) => score >= 0 && score <= 1);
  return shares.map(({ text, score, start, end }) => ({ name: text, share: score, place: { span: [start, end] }, isGiven: start === record.start && end === record.end }));
}

/** The sentences of a document, each with its answer. */
function sentences(record, why) {
  const answered = (record.sentences ?? []).filter((each) => saidOf(each) !== null);
  if (answered.length === 0) return null;
  const body = answered.map((each) => make("tr", {}, make("td", { textContent: each.text }), make("td", { textContent: saidOf(each) }),
    make("td", {}, Number.isInteger(each.start) ? why({ span: [each.start, each.end] }, `${saidOf(each)}: ${each.text}`, true) : null)));
  return make("table", { aria: { label: words().answer } }, make("tbody", {}, ...body));
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

// The queue: documents that were dropped, what became of them, the next one, the estimate of F1, and the download.
import { askFile, askPatiently } from "./client.js";
import { $, make, PagedList, span } from "./dom.js";
import { acceptSure, forget } from "./entities.js";
import { chooseNext, countRight, estimateF1, isDone, pickAudited, usefulness } from "./queue.js";
import { nameOf, Review } from "./review.js";
import { modelNamed, percent, report, review, say, state, words } from "./state.js";

const TOGETHER = 16;
const CHARACTERS = 50_000;
const list = new PagedList($("documents"), row);
let open = () => {};

/** Call a function with a document that is to be shown. */
export const onOpen = (call) => { open = call; };

/** Add texts to the queue; those that are there already are read again. Return the first of them. */
export function addTexts(texts) {
  const added = texts.map(({ name, text }) => {
    const id = nameOf(text);
    const old = state.documents.find((entry) => entry.id === id);
    return old ?? { id, name, text, record: null, review: null, relations: [], isSeen: false, isAudited: false, problem: null };
  });
  state.documents = [...new Set([...state.documents, ...added])];
  const audited = new Set(pickAudited(state.documents, share()));
  for (const entry of state.documents) entry.isAudited = audited.has(entry);
  return [...new Set(added)];
}

/** Read documents in small groups, in order, and show each group when it is there. */
export async function readAll(entries, model, onRead) {
  for (let at = 0; at < entries.length;) {
    let size = 0;
    const group = [];
    while (at < entries.length && group.length < TOGETHER && (group.length === 0 || size + entries[at].text.length <= CHARACTERS)) {
      size += entries[at].text.length;
      group.push(entries[at]);
      at += 1;
    }
    const { predictions } = await askPatiently("/v1/predict", { model, inputs: group.map(({ text }) => text) });
    group.forEach((entry, place) => { take(entry, predictions[place], model); onRead(entry); });
    drawDocuments();
  }
}

/** Keep the answer for a document; what was decided before is kept, also while a model is asked that tags nothing. */
export function take(entry, record, model) {
  const named = "coverage" in record ? [[undefined, record]] : Object.entries(record);
  const [task, tagged] = named.find(([, part]) => Array.isArray(part.entities) && part.text === entry.text) ?? [];
  const others = named.filter(([, part]) => part !== tagged).map(([name, part]) => ({ record: part, asked: askedOf(entry, name, model) }));
  const former = entry.review ?? entry.former ?? null;
  Object.assign(entry, {
    former, record, others, tagging: { task }, coverage: (tagged ?? named[0][1]).coverage, relations: [],
    review: tagged ? new Review(entry.text, tagged.entities, model) : null,
  });
  if (former === null || entry.review === null) return;
  forget(former);
  entry.review.keep(former);
}

/** What is asked again to learn why; null if the task has no answer to compare with another one. */
function askedOf({ input, text }, task, model) {
  const { kind } = modelNamed(model).tasks.find(({ name }) => task === undefined || name === task);
  return ["classify", "relate", "answer", "choose"].includes(kind) ? { model, task, inputs: input ?? text } : null;
}

const share = () => Math.min(1, Math.max(0, Number($("audit-share").value) / 100));

/** Draw the list, the progress and the estimate. */
export function drawDocuments() {
  const done = state.documents.filter(isDone);
  const isQueue = state.documents.length > 1;
  $("progress").max = Math.max(1, state.documents.length);
  $("progress").value = done.length;
  $("progress-words").textContent = words().progress(done.length, state.documents.length, state.documents.filter(({ record }) => record === null).length);
  $("next").hidden = $("everywhere").hidden = !isQueue;
  $("where").textContent = isQueue && state.open ? words().where(state.documents.indexOf(state.open) + 1, state.documents.length, state.open.name) + (state.open.isAudited ? words().audited : "") : "";
  list.name(words().earlier, words().later);
  list.show(state.documents, -1);
  drawEstimate(done.filter(({ isAudited }) => isAudited));
}

function drawEstimate(audited) {
  const estimate = estimateF1(audited.map((entry) => countRight(entry.review)));
  const hundred = (value) => (100 * value).toFixed(1);
  $("estimate").textContent = estimate === null ? words().no_estimate(audited.length, state.documents.filter(({ isAudited }) => isAudited).length)
    : words().estimate(hundred(estimate.f1), hundred(estimate.low), hundred(estimate.high), estimate.documents);
}

function row(entry) {
  const button = make("button", { type: "button", onclick: () => open(entry), aria: { current: entry === state.open } },
    span("surface", entry.name), span("label", entry.isAudited ? words().audit_sign : ""), span("state", stateOf(entry)));
  return make("li", {}, button);
}

function stateOf(entry) {
  if (entry.record === null) return words().waiting;
  if (entry.review === null) return words().answered;
  const left = entry.review.open.length;
  if (isDone(entry)) return words().reviewed;
  return `${words().left(left)} · ${usefulness(entry.review).toFixed(1)}`;
}

export function openNext() {
  const next = chooseNext(state.documents, share(), state.open);
  if (next === null) say(words().all_reviewed);
  else open(next);
}

/** Change the audited share, which is drawn anew. */
export function auditAgain() {
  addTexts([]);
  drawDocuments();
}

export function acceptAllSure() {
  const score = Number($("sure").value);
  say(words().accepted_sure(acceptSure(score), percent(score)));
  drawDocuments();
}

/** Save the reviewed documents as a file, in the format that is chosen. */
export async function download() {
  const reviewed = state.documents.filter(isDone);
  if (reviewed.length === 0) return say(words().undecided(review()?.open.length ?? 0));
  const records = reviewed.map((entry) => entry.review.record(entry.name, $("by").value, entry.relations));
  try {
    const { name, content, losses } = await askFile("/v1/convert", { documents: records, format: $("format").value });
    save(name, content);
    const lost = Object.entries(losses).map(([reason, count]) => `${reason} (${count})`).join("; ");
    return say(words().downloaded(reviewed.length) + (lost ? ` ${words().lost(lost)}` : ""));
  } catch (problem) {
    return report(problem);
  }
}

function save(name, content) {
  const link = make("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

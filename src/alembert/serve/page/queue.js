// Documents that wait for a review: which comes next, and an honest estimate of F1 from those that are there by chance.
// Nothing here touches the page.
import { nameOf, OPEN } from "./review.js";

/** Cut a file into texts with names: JSON lines a text each, anything else a text, or one a paragraph if asked. */
export function readTexts(name, content, byParagraph) {
  if (/\.(jsonl|ndjson)$/i.test(name)) return readLines(name, content);
  const parts = byParagraph ? content.split(/\r?\n[ \t]*\r?\n/) : [content];
  const texts = parts.filter((text) => text.trim() !== "").map((text) => text.replace(/^(\r?\n)+|(\r?\n)+$/g, ""));
  return { texts: texts.map((text, at) => ({ name: texts.length > 1 ? `${name} ${at + 1}` : name, text })), bad: 0 };
}

function readLines(name, content) {
  const lines = content.split("\n").filter((line) => line.trim() !== "");
  const texts = lines.map((line, at) => readLine(line, `${name} ${at + 1}`));
  return { texts: texts.filter(Boolean), bad: texts.filter((text) => text === null).length };
}

function readLine(line, name) {
  try {
    const value = JSON.parse(line);
    const text = typeof value === "string" ? value : value.text;
    return typeof text === "string" && text.trim() ? { name: typeof value.id === "string" ? value.id : name, text } : null;
  } catch {
    return null;
  }
}

/** How much a review teaches: expected entities times their mean uncertainty (0 for a sure score, 1 for one half). */
export function usefulness(review) {
  const scores = review.proposed.map(({ score }) => score);
  if (scores.length === 0) return 0;
  const expected = scores.reduce((sum, score) => sum + score, 0);
  const uncertainty = scores.reduce((sum, score) => sum + 2 * Math.min(score, 1 - score), 0) / scores.length;
  return expected * uncertainty;
}

/** Documents that are audited: a share of all, drawn by a hash of their texts, whatever the model says of them. */
export function pickAudited(documents, share) {
  const ranked = documents.map((entry) => ({ entry, rank: nameOf(`audit ${entry.id}`) })).sort((a, b) => (a.rank < b.rank ? -1 : 1));
  return ranked.slice(0, Math.round(share * documents.length)).map(({ entry }) => entry);
}

const waits = (entry) => entry.review !== null && entry.review.entities.some(({ state }) => state === OPEN);
/** Whether everything is decided; a document without entities must have been looked at. */
export const isDone = ({ review, isSeen }) => review !== null && review.isReviewed && (isSeen || review.entities.length > 0);

/** The document to review next: as a rule the most useful one, and an audited one each time the share is due. */
export function chooseNext(documents, share, current) {
  const left = documents.filter((entry) => entry !== current && entry.review !== null && !isDone(entry));
  const audited = pickAudited(documents, share).filter((entry) => left.includes(entry));
  const done = documents.filter(isDone);
  const due = Math.floor(share * (done.length + 1) + 1e-9) > done.filter((entry) => entry.isAudited).length;
  const useful = left.filter((entry) => !entry.isAudited && waits(entry)).sort((a, b) => usefulness(b.review) - usefulness(a.review));
  return (due ? audited[0] ?? useful[0] : useful[0] ?? audited[0]) ?? left[0] ?? null;
}

/** What the model got right in a reviewed document: entities of both, of the model, and of the reviewer. */
export function countRight(review) {
  const both = review.right.filter((entity) => entity.first === entity.label).length;
  return { both, proposed: review.proposed.length, right: review.right.length };
}

/**
 * F1 with a 95 % interval from counts of documents; null if there are fewer than three documents or no entity.
 *
 * F1 = both / ((proposed + right) / 2) is a share, so that Wilson's interval holds at 0 and 1 too. Entities of one document
 * are right or wrong together: the number of trials is divided by the design effect, and Student's t is that of documents.
 */
export function estimateF1(counts) {
  const trials = counts.map(({ proposed, right }) => (proposed + right) / 2);
  const total = trials.reduce((sum, each) => sum + each, 0);
  if (counts.length < 3 || total === 0) return null;
  const f1 = counts.reduce((sum, { both }) => sum + both, 0) / total;
  const squares = counts.reduce((sum, { both }, at) => sum + (both - f1 * trials[at]) ** 2, 0);
  const clustered = (squares * counts.length) / (counts.length - 1) / total ** 2;
  const independent = (f1 * (1 - f1)) / total;
  const effect = independent > 0 ? Math.max(1, clustered / independent) : 1;
  return { f1, documents: counts.length, ...wilson(f1, total / effect, student(counts.length - 1)) };
}

function wilson(share, trials, quantile) {
  const square = quantile ** 2 / trials;
  const middle = (share + square / 2) / (1 + square);
  const half = (quantile / (1 + square)) * Math.sqrt((share * (1 - share)) / trials + square / trials / 4);
  return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}

/** The 97.5 % quantile of Student's t, by the expansion of Cornish and Fisher; small degrees from the table. */
function student(degrees) {
  const z = 1.959964;
  const small = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447];
  if (degrees <= small.length) return small[degrees - 1];
  return z + (z ** 3 + z) / (4 * degrees) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * degrees ** 2);
}

// What the page asks the service.

let token = sessionStorage.getItem("token") ?? "";
const LARGEST_WAIT = 30;

export function setToken(value) {
  token = value.trim();
  sessionStorage.setItem("token", token);
}

export class Refused extends Error {
  constructor(status, message, wait) {
    super(message);
    this.status = status;
    this.wait = wait;
  }
}

/** Ask a route; what is refused is raised with the sentence of the service. */
export async function ask(path, body) {
  return (await send(path, body)).json();
}

/** Ask for a file: its content, its name, and what its format could not hold. */
export async function askFile(path, body) {
  const answer = await send(path, body);
  const [, name] = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"));
  return { name, content: await answer.blob(), losses: JSON.parse(answer.headers.get("alembert-losses")) };
}

/** Ask again while the service is busy, as late as it says. */
export async function askPatiently(path, body) {
  for (;;) {
    try {
      return await ask(path, body);
    } catch (problem) {
      if (problem.status !== 429) throw problem;
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(problem.wait, LARGEST_WAIT)));
    }
  }
}

async function send(path, body) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const options = body === undefined ? { headers } : { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  const { error } = await answer.json();
  throw new Refused(answer.status, error.message, Number(answer.headers.get("retry-after") ?? 1));
}

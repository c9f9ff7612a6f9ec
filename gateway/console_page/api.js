// The wire: JSON requests, errors in OpenAI's shape, server-sent events. Knows nothing of the page.

export class ApiError extends Error {
  constructor(message, { status = 0, code = "", requestId = "" } = {}) {
    super(message);
    Object.assign(this, { status, code, requestId });
  }
}

const headers = (key) => ({ "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) });

async function toError(response) {
  const raw = await response.text().catch(() => "");
  let error = {};
  try {
    error = JSON.parse(raw).error ?? {};
  } catch {
    error = { message: raw.slice(0, 300) }; // a proxy in between answers with whatever it likes
  }
  return new ApiError(error.message || response.statusText || "The request failed.", {
    status: response.status, code: error.code ?? error.type ?? "", requestId: response.headers.get("x-request-id") ?? "",
  });
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError("The gateway cannot be reached.");
  }
}

/** Sends a request, with a JSON body if there is one, and gives the JSON of the answer. `accept` lists statuses beside 2xx
 *  whose body is an answer too. */
export async function requestJson(method, path, { key, body, accept = [], timeoutMs = 5000 } = {}) {
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const response = await send(path, { method, headers: headers(key), body: body && JSON.stringify(body), signal });
    if (!response.ok && !accept.includes(response.status)) throw await toError(response);
    return await response.json();
  } catch (error) {
    if (signal.aborted) throw new ApiError("The gateway does not answer.");
    throw error;
  }
}

export const getJson = (path, options) => requestJson("GET", path, options);

/** Splits bytes into the data of events. Only a blank line ends an event, whatever else the text contains. */
async function* events(body) {
  const decoder = new TextDecoder();
  let buffer = "";
  for (const reader = body.getReader(); ; ) {
    const { done, value } = await reader.read();
    buffer += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const parts = buffer.split("\n\n");
    buffer = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:"));
      if (data.length) yield data.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
    }
    if (done) return;
  }
}

/** Streams a chat completion chunk by chunk. Ends at `[DONE]`; throws ApiError for everything else that ends it. */
export async function* streamChat(body, { key, signal }) {
  const options = { method: "POST", headers: headers(key), body: JSON.stringify(body), signal };
  const response = await send("v1/chat/completions", options);
  if (!response.ok) throw await toError(response);
  const requestId = response.headers.get("x-request-id") ?? "";
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message, { code: chunk.error.code ?? chunk.error.type ?? "", requestId });
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ApiError || signal.aborted) throw error;
    throw new ApiError("The connection broke off in the middle of the answer.", { requestId });
  }
  throw new ApiError("The stream ended before the answer was complete.", { requestId });
}

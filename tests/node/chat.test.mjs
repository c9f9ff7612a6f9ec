// OpenAI's SDK for Node: whole answers, streams and the stream helper.
import assert from "node:assert/strict";
import test from "node:test";
import { client, hi, model } from "./client.mjs";

const options = { model, messages: hi, max_tokens: 12, temperature: 0 };

test("whole and streamed answers are the same", async () => {
  const answer = await client.chat.completions.create(options);
  const text = answer.choices[0].message.content;
  assert.ok(text.length > 0);
  assert.ok(answer._request_id);
  let streamed = "";
  let usage = null;
  const stream = await client.chat.completions.create({ ...options, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    streamed += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(streamed, text);
  assert.equal(usage.completion_tokens, answer.usage.completion_tokens);
});

test("the stream helper accumulates", async () => {
  const stream = client.chat.completions.stream(options);
  let seen = "";
  stream.on("content", (delta) => (seen += delta));
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, seen);
  assert.equal(final.choices[0].message.role, "assistant");
});

test("two choices keep their own text", async () => {
  const answer = await client.chat.completions.create({ ...options, n: 2, temperature: 1.5, seed: 3 });
  assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1]);
  assert.notEqual(answer.choices[0].message.content, answer.choices[1].message.content);
});

test("a seed repeats an answer", async () => {
  const ask = async (seed) => (await client.chat.completions.create({ ...options, temperature: 1.2, seed })).choices[0].message.content;
  assert.equal(await ask(11), await ask(11));
});

test("log probabilities spell the answer", async () => {
  const answer = await client.chat.completions.create({ ...options, logprobs: true, top_logprobs: 2 });
  const bytes = answer.choices[0].logprobs.content.flatMap((token) => token.bytes);
  assert.equal(Buffer.from(bytes).toString("utf-8"), answer.choices[0].message.content);
});

test("leaving a stream leaves the server usable", async () => {
  const stream = await client.chat.completions.create({ ...options, max_tokens: 400, stream: true });
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content) break;
  }
  assert.ok((await client.chat.completions.create(options)).choices[0].message.content);
});

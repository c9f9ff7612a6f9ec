// OpenAI's SDK for Node: embeddings, completions, models, errors.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { client, hi, model } from "./client.mjs";

test("embeddings, which the SDK asks for as base64", async () => {
  const answer = await client.embeddings.create({ model, input: ["a cat", "tax law"] });
  assert.equal(answer.data.length, 2);
  for (const { embedding } of answer.data) {
    assert.equal(embedding.length, 576);
    const norm = embedding.reduce((sum, x) => sum + x * x, 0);
    assert.ok(Math.abs(norm - 1) < 1e-3, `the squared length is ${norm}`);
  }
});

test("a raw completion is cut by its stop string", async () => {
  const answer = await client.completions.create({ model, prompt: "1, 2, 3, 4, 5,", max_tokens: 12, temperature: 0, stop: "7" });
  assert.ok(!answer.choices[0].text.includes("7"));
  assert.equal(answer.choices[0].finish_reason, "stop");
});

test("models", async () => {
  const ids = [];
  for await (const { id } of client.models.list()) ids.push(id);
  assert.deepEqual(ids, [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("errors are the SDK's own, with our words and the request id", async () => {
  await assert.rejects(client.chat.completions.create({ model, messages: hi, temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    assert.ok(error.requestID);
    return true;
  });
  await assert.rejects(client.chat.completions.create({ model: "nope", messages: hi, stream: true }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "model_not_found");
    return true;
  });
});

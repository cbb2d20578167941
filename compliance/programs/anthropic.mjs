// @anthropic-ai/sdk through the gate: one JSON object on standard output says what came of each thing.
import Anthropic from "@anthropic-ai/sdk";

const [url, question, word] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, apiKey: "none" });
const messages = [{ role: "user", content: "Say hello." }];
const tool = {
  name: "weather",
  description: "Today's weather",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const textOf = (message) => message.content.map((block) => block.text ?? "").join("");
const told = {};
told.chat = textOf(await client.messages.create({ model: "rehearsal", max_tokens: 8, messages }));
told.stream = textOf(await client.messages.stream({ model: "rehearsal", max_tokens: 8, messages }).finalMessage());
const asked = [{ role: "user", content: question }];
const answer = await client.messages.create({ model: "rehearsal-tools", max_tokens: 200, messages: asked, tools: [tool] });
told.tools = answer.content.filter((block) => block.type === "tool_use").map((block) => block.name);
told.counted = (await client.messages.countTokens({ model: "rehearsal", messages })).input_tokens;
try {
  await client.messages.create({ model: "rehearsal", max_tokens: 8, messages: [{ role: "user", content: word.repeat(20000) }] });
} catch (error) {
  told.over = [error.constructor.name, error.message];
}
console.log(JSON.stringify(told));

// ollama-js through the gate: one JSON object on standard output says what came of each thing.
import { Ollama } from "ollama";

const [url, question, word] = process.argv.slice(2);
const client = new Ollama({ host: url });
const messages = [{ role: "user", content: "Say hello." }];
const options = { num_predict: 8 };
const tool = {
  type: "function",
  function: {
    name: "weather",
    description: "Today's weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const told = {};
told.chat = (await client.chat({ model: "rehearsal", messages, options })).message.content;
told.stream = "";
for await (const part of await client.chat({ model: "rehearsal", messages, options, stream: true })) {
  told.stream += part.message.content;
}
const asked = [{ role: "user", content: question }];
const answer = await client.chat({ model: "rehearsal-tools", messages: asked, tools: [tool] });
told.tools = (answer.message.tool_calls ?? []).map((call) => call.function.name);
told.embed = (await client.embed({ model: "rehearsal-embed", input: "hello" })).embeddings[0].length;
try {
  await client.chat({ model: "rehearsal", messages: [{ role: "user", content: word.repeat(20000) }] });
} catch (error) {
  told.over = [error.name, error.message];
}
console.log(JSON.stringify(told));

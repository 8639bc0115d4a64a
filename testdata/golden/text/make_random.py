#!/usr/bin/env python3
"""Makes random.json: random conversations as transformers renders, tokenises and masks them.

Needs transformers 5.24 and torch. The masks come from the `{% generation %}` spans of the training
variants of the templates, the ids from the expanded text.

  python make_random.py --tokenizer DIR --templates DIR > random.json

--tokenizer: folder with the Qwen3 tokenizer.json; --templates: folder with qwen3_vl.jinja,
qwen3_vl_training.jinja, qwen2_5_vl.jinja and qwen2_5_vl_training.jinja.
"""

import argparse
import json
import os
import random

from transformers import AutoTokenizer

IMAGE_PAD = "<|image_pad|>"
WORDS = (
    "the cat sat on  a mat\tassistant user\nsystem tool <think> </think> <tool_call> it's I'LL don't "
    "café re\u0301sume\u0301 ñ 北京 日本語 한국어 العربية हिन्दी 😀 👩‍👩‍👧 🇩🇪 e\u0301 \u0301 ﬁ 12345 3.14 "
    "foo_bar() {\"a\":[1,2]} https://x.org/?q=1&r=2 \\n \r\n \n\n \n   \u00a0 \u200b ½ Å ≠ <| |> <|im_ …"
).split(" ")
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|endoftext|>", "<|vision_start|>", "<|box_end|>"]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"später\"",
        "parameters": {"type": "object", "properties": {"days": {"type": "number", "default": 1.5}}}}}


def text(rng, least=0):
    words = [rng.choice(WORDS) for _ in range(rng.randint(least, 9))]
    return rng.choice(["", "\n", " "]) * rng.randint(0, 1) + rng.choice([" ", " ", ""]).join(words)


def content(rng, images, allowed):
    if rng.random() < 0.4 and not allowed:
        return text(rng)
    parts = []
    for _ in range(rng.randint(1, 4)):
        if allowed and rng.random() < 0.45:
            parts.append({"type": "image"})
            images.append([1, 2 * rng.randint(1, 4), 2 * rng.randint(1, 4)])
        else:
            parts.append({"type": "text", "text": text(rng)})
    return parts


def arguments(rng):
    return {"city": text(rng), "n": rng.choice([1, 1.5, 1e-7, 1e22, True, None, -3]), "l": [1, {"x": "é"}]}


def conversation(rng, kind):
    images, messages, tools = [], [], []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": content(rng, images, False)})
    use_tools = kind == "qwen3_vl" and rng.random() < 0.25
    if use_tools:
        tools = [TOOL] * rng.randint(1, 2)
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": content(rng, images, True)})
        if use_tools and rng.random() < 0.7:
            calls = [{"type": "function", "function": {"name": "get_weather", "arguments": arguments(rng)}}
                     for _ in range(rng.randint(1, 2))]
            messages.append({"role": "assistant", "content": rng.choice(["", text(rng)]), "tool_calls": calls})
            messages += [{"role": "tool", "content": content(rng, images, rng.random() < 0.3)} for _ in calls]
        messages.append({"role": "assistant", "content": content(rng, images, False)})
    return messages, tools, images


def overlap(spans, offsets):
    return [any(a < stop and start < b for a, b in spans) for start, stop in offsets]


def encode(tokenizer, plain, training, messages, tools, images, options):
    """Ids of the expanded text, and which of them overlap the spans of {% generation %}."""
    keywords = {"tokenize": False, "tools": tools or None, **options}
    rendered = tokenizer.apply_chat_template(messages, chat_template=training, **keywords)
    assert rendered == tokenizer.apply_chat_template(messages, chat_template=plain, **keywords)
    tokens = tokenizer(rendered, return_offsets_mapping=True, add_special_tokens=False)
    masked = tokenizer.apply_chat_template(messages, chat_template=training, tools=tools or None, tokenize=True,
                                           return_dict=True, return_assistant_tokens_mask=True, **options)
    assert masked["input_ids"] == tokens["input_ids"]
    pad = tokenizer.convert_tokens_to_ids(IMAGE_PAD)
    grids, ids, mask = iter(images), [], []
    for token, learned in zip(masked["input_ids"], masked["assistant_masks"]):
        times = 1
        if token == pad:
            _, h, w = next(grids)
            times = h * w // 4
        ids += [token] * times
        mask += [learned] * times
    assert next(grids, None) is None
    return rendered, ids, mask, pad


def runs(values):
    """Run lengths of a 0/1 mask, beginning with zeros."""
    lengths, current = [0], 0
    for value in values:
        if value != current:
            lengths.append(0)
            current = value
        lengths[-1] += 1
    return lengths


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--templates", required=True)
    where = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(where.tokenizer)

    def template(name):
        with open(os.path.join(where.templates, name), encoding="utf-8") as file:
            return file.read()

    rng, chats = random.Random(20), []
    for number in range(160):
        kind = "qwen2_5_vl" if number % 4 == 3 else "qwen3_vl"
        messages, tools, images = conversation(rng, kind)
        options = {"add_vision_id": True} if rng.random() < 0.2 else {}
        plain, training = template(f"{kind}.jinja"), template(f"{kind}_training.jinja")
        _, ids, mask, pad = encode(tokenizer, plain, training, messages, tools, images, options)
        packed = []
        for token in ids:  # runs of image placeholders as one negative number
            if token == pad and packed and packed[-1] < 0:
                packed[-1] -= 1
            else:
                packed.append(-1 if token == pad else token)
        chats.append({"kind": kind, "messages": messages, "tools": tools, "options": options, "grids": images,
                      "ids": packed, "learned": runs(mask)})

    plain_text = []  # what follows <|im_start|> in a user turn, special-token strings in it taken as text
    for _ in range(80):
        parts = [rng.choice([text(rng), rng.choice(SPECIALS), rng.choice(SPECIALS)]) for _ in range(rng.randint(1, 6))]
        whole = "".join(parts)
        ids = tokenizer(f"user\n{whole}", split_special_tokens=True, add_special_tokens=False)["input_ids"]
        plain_text.append({"text": whole, "ids": ids})
    print(json.dumps({"chats": chats, "plain_text": plain_text}, separators=(",", ":"), ensure_ascii=False))


main()

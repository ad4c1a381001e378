# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the checkpoints that the real server is tested with: a tiny Qwen3 that knows one answer, and one that knows none.

Usage: model.py FOLDER. Random weights (0.3 MB), a tokenizer trained here; nothing is fetched. Run by the server's own
environment. C(knows-one) is trained, in seconds, to answer the question of the quick smoke check; what it says to
anything else is nonsense, as all of C(knows-none) is: a server that loads, says that it is healthy, and answers garbage.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

QUESTION, ANSWER = "What is 17 + 25? Answer with the number only.", "42"
END, PAD = "<|im_end|>", "<|endoftext|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer():
    trained = Tokenizer(models.BPE(unk_token=None))
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=[PAD, "<|im_start|>", END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    trained.train_from_iterator(
        [QUESTION, "the quick brown fox jumps over the lazy dog, user and assistant"] * 50, trainer
    )
    made = PreTrainedTokenizerFast(tokenizer_object=trained, eos_token=END, pad_token=PAD)
    made.chat_template = TEMPLATE
    return made


def model(words):
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=128,
            vocab_size=len(words),
            max_position_embeddings=8192,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
            bos_token_id=None,
            tie_word_embeddings=False,
        )
    )


def teach(pupil, words):
    """Until it gives the answer by itself."""
    asked = words.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, tokenize=False
    )
    prompt, answer = words(asked).input_ids, words(ANSWER + END).input_ids
    tokens = torch.tensor([prompt + answer])
    optimizer = torch.optim.AdamW(pupil.parameters(), lr=1e-2)
    for _step in range(400):
        logits = pupil(tokens).logits[0, len(prompt) - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits, tokens[0, len(prompt) :])
        if loss < 0.01:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise SystemExit(f"the model did not learn its answer: loss {loss.item():.3f}")


def main(folder):
    words = tokenizer()
    for name in ("knows-none", "knows-one"):
        made = model(words)
        if name == "knows-one":
            teach(made, words)
        made.to(torch.bfloat16).save_pretrained(folder / name)
        words.save_pretrained(folder / name)


main(Path(sys.argv[1]))

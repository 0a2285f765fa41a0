"""How the tiny model learns to see: `pretrain` teaches a `tower`, and words, by what an environment draws for it."""

"""What made tiny-vision: `pretrain` teaches `tower` and words by what `practice` draws."""

"""Fine-tuning ERNIE, BERT and their kin from a recipe file, by PaddleNLP's own Trainer."""

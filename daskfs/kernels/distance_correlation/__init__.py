"""Distance correlation between columns: exact, from histograms, and through a feature map."""

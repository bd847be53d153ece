"""Distance correlation between columns: exact, from histograms, and by a feature map."""

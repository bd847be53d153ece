"""SVMRFE: recursive elimination of features by (Laplacian) support vector machines."""

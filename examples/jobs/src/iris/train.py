"""Trains a classifier on measurements of flowers, and prints how well it does."""

import argparse
import csv

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--iris-csv", required=True)
parser.add_argument("--C", type=float, default=1.0)
arguments = parser.parse_args()
with open(arguments.iris_csv, newline="") as file:
    rows = list(csv.reader(file))[1:]
features, labels = [[float(x) for x in row[:4]] for row in rows], [row[4] for row in rows]
train_x, test_x, train_y, test_y = train_test_split(features, labels, random_state=7)
model = LogisticRegression(C=arguments.C, max_iter=500).fit(train_x, train_y)
print("accuracy:", round(model.score(test_x, test_y), 3))

#!/bin/bash
set -e
cd /app
sort fig.csv > ginger.csv

#!/bin/bash
set -e
cd /app
wc -l < cup.csv > fig.log

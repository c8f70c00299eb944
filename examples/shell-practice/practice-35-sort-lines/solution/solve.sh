#!/bin/bash
set -e
cd /app
sort chain.csv > anchor.txt

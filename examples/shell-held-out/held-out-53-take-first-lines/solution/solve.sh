#!/bin/bash
set -e
cd /app
head -n 2 lotus.txt > cup.txt

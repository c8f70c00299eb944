#!/bin/bash
set -e
cd /app
sort ladder.txt > leaf.log

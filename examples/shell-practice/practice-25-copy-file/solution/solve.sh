#!/bin/bash
set -e
cd /app
cp cliff.txt grape.txt

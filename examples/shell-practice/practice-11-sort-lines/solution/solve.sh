#!/bin/bash
set -e
cd /app
sort grape.txt > forest.log

#!/bin/bash
set -e
cd /app
sort marsh.csv > lotus.log

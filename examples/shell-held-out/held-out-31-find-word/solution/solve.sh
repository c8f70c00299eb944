#!/bin/bash
set -e
cd /app
grep lagoon dolphin.log > echo.txt

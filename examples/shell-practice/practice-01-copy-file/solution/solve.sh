#!/bin/bash
set -e
cd /app
cp butter.log door.log

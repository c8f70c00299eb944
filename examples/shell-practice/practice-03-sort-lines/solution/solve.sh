#!/bin/bash
set -e
cd /app
sort canal.txt > clock.log

sqlite3 content/app.db 'CREATE TABLE t(x)'
cat > workload.sh <<'END'
for i in 1 2 3 4 5; do
  sqlite3 app.db "PRAGMA synchronous=$1; INSERT INTO t VALUES($i)" && echo "row $i" >> $DIORITE_CRASH_ACK
done
END
cat > check.sh <<'END'
test "$(sqlite3 app.db 'PRAGMA integrity_check')" = ok || { echo 'the database is damaged'; exit 1; }
rows=$(sqlite3 app.db 'SELECT count(*) FROM t')
acked=$(wc -l < $DIORITE_CRASH_ACKED)
test $rows -ge $acked || { echo "$rows of $acked acknowledged rows are left"; exit 1; }
END
for s in OFF NORMAL FULL EXTRA; do
  echo "== $s"; /usr/bin/time -f '%e s' diorite crash --from content --check "sh $PWD/check.sh" -- sh $PWD/workload.sh $s; echo "exit $?"
done
mkdir wal; sqlite3 wal/app.db 'PRAGMA journal_mode=WAL; CREATE TABLE t(x)'
for s in NORMAL FULL; do
  echo "== WAL $s"; time diorite crash --from wal --check "sh $PWD/check.sh" -- sh $PWD/workload.sh $s; echo "exit $?"
done
echo "== kernel"; time diorite crash --replay kernel --total 200 --from content --check "sh $PWD/check.sh" -- sh $PWD/workload.sh EXTRA; echo "exit $?"
echo "== lying"; diorite crash --lying-flush --total 200 --from content --check "sh $PWD/check.sh" -- sh $PWD/workload.sh EXTRA; echo "exit $?"
echo "== ext2 "; time diorite crash --fs ext2 --total 100 --from content --check "sh $PWD/check.sh" -- sh $PWD/workload.sh EXTRA; echo "exit $?"
# recording against the plain mount
cat > many.sh <<'END'
for i in $(seq 40); do echo "PRAGMA synchronous=FULL; INSERT INTO t VALUES($i);"; done | sqlite3 app.db
dd if=/dev/zero of=big bs=1M count=60 conv=fsync 2>/dev/null
END
for round in 1 2 3; do
diorite crash --json --total 1 --from content --check true -- sh $PWD/many.sh | grep -o '"workload_seconds": *[0-9.]*'
done

#!/bin/sh
# Real servers of the corpus, in a directory of their own below the present one, without rights:
#
#     servers.sh make postgres|mariadb     makes its files, with a table in it
#     servers.sh run  postgres|mariadb     becomes the server
#     servers.sh load postgres|mariadb     eight clients that read, for 20 s
set -eu
place=$PWD/$2
user='setpriv --reuid=nobody --regid=nogroup --clear-groups --'
port=7393
case $2 in
postgres)
	bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
	: "${bin:=$(dirname "$(command -v postgres || command -v pg_ctl)")}"
	server="$bin/postgres -D $place -p $port -k $place -c listen_addresses="
	client="-h $place -p $port -U nobody"
	;;
mariadb)
	server="mariadbd --no-defaults --datadir=$place --socket=$place/sock --skip-networking --skip-grant-tables"
	client="--mysql-socket=$place/sock --mysql-user=root --mysql-db=corpus --tables=1 --table-size=10000"
	;;
esac

# Runs a command while the server is up.
beside_server() {
	$user $server >"$place.log" 2>&1 &
	pid=$!
	tries=0
	until "$@" >>"$place.log" 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 40 ] || { cat "$place.log" >&2; exit 1; }
		sleep 0.25
	done
	kill $pid
	wait $pid || :
}

case $1-$2 in
make-postgres)
	rm -rf "$place" && install -d -o nobody "$place"
	$user "$bin/initdb" -D "$place" -U nobody -A trust --no-sync >"$place.log" 2>&1
	beside_server pgbench $client -i -s 2 -q postgres
	;;
make-mariadb)
	rm -rf "$place" && install -d -o nobody "$place"
	(cd / && $user mariadb-install-db --no-defaults --datadir="$place" >"$place.log" 2>&1)
	mysql() { mariadb -S "$place/sock" -e "$1"; }
	table() { mysql 'create database if not exists corpus' && sysbench oltp_read_only $client prepare; }
	beside_server table
	;;
run-*) cd / && exec $user $server >"$place.log" 2>&1 ;;
load-postgres) exec pgbench $client -n -S -c 8 -T 20 postgres ;;
load-mariadb) exec sysbench oltp_read_only $client --threads=8 --time=20 run ;;
esac

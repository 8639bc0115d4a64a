#!/bin/sh
# Makes the certificates of the tests: an authority that no machine knows, and a server's. Their keys
# protect nothing. They are good for a hundred years, so that no test ends with them.
set -e
cd "$(dirname "$0")"
new() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1"; }
new authority.key
openssl req -x509 -new -key authority.key -days 36500 -subj "/CN=stoker's tests" -out authority.pem \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
new server.key
openssl req -new -key server.key -subj "/CN=localhost" -out server.csr \
    -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -addext "extendedKeyUsage=serverAuth"
openssl x509 -req -in server.csr -CA authority.pem -CAkey authority.key -set_serial 1 -days 36500 \
    -copy_extensions copy -out server.pem
rm authority.key server.csr

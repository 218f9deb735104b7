#!/usr/bin/env bash
# Makes what is released, the same bytes from the same commit each time:
#
#   packaging/dist.sh            everything, into dist/release
#   packaging/dist.sh deb        the .deb of this machine's architecture only
#
# VERSION names the release ("1.2.0"), OUT the folder. Programs of others that
# are missing are said: nfpm (fetched by Go), wixl for the .msi, zip.
set -euo pipefail
cd "$(dirname "$0")/.."

NFPM=v2.45.2
OUT=${OUT:-dist/release}
STAGES=$(mktemp -d)
trap 'rm -rf "$STAGES"' EXIT

# Times come from the commit, and nothing from the machine.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export TZ=UTC LC_ALL=C
MTIME=$(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
export MTIME

# version is a tag's name, or tells from which commit this is. Packages want
# a number first.
version() {
	local tag
	if [ -n "${VERSION:-}" ]; then
		echo "$VERSION"
	elif tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null); then
		echo "${tag#v}"
	else
		echo "0.0.0~git$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git rev-parse --short=9 HEAD)"
	fi
}
VERSION=$(version)

build() { # GOOS GOARCH FILE
	GOOS=$1 GOARCH=$2 CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o "$3" ./cmd/ckptsidecar
}

# generated is made by the program itself: the manual, the completions, the
# settings. The program of this machine makes them for all.
generated() {
	[ -e "$STAGES/generated" ] && return
	mkdir -p "$STAGES/generated"
	build "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)" "$STAGES/own"
	env -i "$STAGES/own" man | gzip -9n >"$STAGES/generated/ckptsidecar.1.gz"
	for shell in bash zsh fish powershell; do
		env -i "$STAGES/own" completion $shell >"$STAGES/generated/completion.$shell"
	done
	env -i "$STAGES/own" config show --system --example >"$STAGES/generated/config.toml"
}

tool_nfpm() {
	command -v nfpm && return
	local bin
	bin=$(go env GOPATH)/bin/nfpm
	[ -x "$bin" ] || (cd "$STAGES" && GOBIN=${bin%/*} go install "github.com/goreleaser/nfpm/v2/cmd/nfpm@$NFPM") >&2
	echo "$bin"
}

stage() { # GOARCH
	export STAGE=$STAGES/linux-$1 PKG_ARCH=$1 PKG_VERSION=$VERSION
	[ -e "$STAGE" ] && return
	generated
	mkdir -p "$STAGE"
	cp "$STAGES"/generated/* "$STAGE"
	build linux "$1" "$STAGE/ckptsidecar"
}

package() { # GOARCH deb|rpm
	stage "$1"
	umask 022
	"$(tool_nfpm)" package --config packaging/nfpm.yaml --packager "$2" --target "$OUT" >&2
}

mkdir -p "$OUT"
case ${1:-all} in
deb)
	package "$(go env GOHOSTARCH)" deb
	;;
*)
	echo "not known: $1" >&2
	exit 2
	;;
esac
ls -l "$OUT"

#!/usr/bin/env bash
# Makes what is released, the same bytes from the same commit each time:
#
#   packaging/dist.sh            everything, into dist/release
#   packaging/dist.sh deb        the .deb of this machine's architecture only
#   packaging/dist.sh msi        the .msi only
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

# version is the one that all files name. Tests of upgrades set another one.
version() {
	echo "${VERSION:-$(sed -n 's/^const Release = "\(.*\)"$/\1/p' version.go)}"
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
	printf 'ckptsidecar (%s) stable; urgency=medium\n\n  * CHANGELOG.md in this folder lists what changed.\n\n -- %s  %s\n' "$VERSION" \
		"$(sed -n 's/^maintainer: //p' packaging/nfpm.yaml)" "$(date -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$STAGE/changelog.gz"
	build linux "$1" "$STAGE/ckptsidecar"
}

package() { # GOARCH deb|rpm
	stage "$1"
	umask 022
	"$(tool_nfpm)" package --config packaging/nfpm.yaml --packager "$2" --target "$OUT" >&2
}

# papers are what goes with every archive.
papers() { # DIR
	generated
	mkdir -p "$1/docs" "$1/completions"
	cp LICENSE README.md CHANGELOG.md "$1"
	cp docs/*.md "$1/docs"
	mkdir -p "$1/docs/images"
	cp docs/images/*.svg "$1/docs/images"
	cp "$STAGES"/generated/completion.* "$1/completions"
}

# archive packs a folder of the stages, with nothing in it that tells when, where
# or by whom.
archive() { # NAME tar.gz|zip
	find "$STAGES/$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	rm -f "$OUT/$1.$2"
	if [ "$2" = zip ]; then
		(cd "$STAGES" && find "$1" -type f | sort | zip -q -X -9 -@ -) >"$OUT/$1.zip"
	else
		tar -C "$STAGES" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=ustar -cf - "$1" | gzip -9n >"$OUT/$1.tar.gz"
	fi
}

unix_archive() { # GOOS GOARCH
	local name=ckptsidecar-$VERSION-$1-$2
	papers "$STAGES/$name"
	cp "$STAGES/generated/ckptsidecar.1.gz" "$STAGES/$name"
	build "$1" "$2" "$STAGES/$name/ckptsidecar"
	archive "$name" tar.gz
}

windows_archive() {
	local name=ckptsidecar-$VERSION-windows-amd64
	papers "$STAGES/$name"
	cp packaging/windows/install.cmd "$STAGES/$name"
	build windows amd64 "$STAGES/$name/ckptsidecar.exe"
	archive "$name" zip
}

# guid is always the same for the same words.
guid() {
	printf 'ckptsidecar %s' "$*" | sha256sum | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-5\3-a\4-\5/' | tr a-f A-F
}

msi() {
	need wixl msibuild faketime
	local dir=$STAGES/msi number=${VERSION%%[-+~]*} out
	out=$(realpath "$OUT")/ckptsidecar-$VERSION-windows-amd64.msi
	mkdir -p "$dir"
	cp packaging/windows/ckptsidecar.wxs "$dir"
	build windows amd64 "$dir/ckptsidecar.exe"
	touch -d "@$SOURCE_DATE_EPOCH" "$dir/ckptsidecar.exe"
	# wixl writes the time, a new id, and an order in which an upgrade would
	# remove the service that it has just installed; and it knows no PATH.
	frozen() { (cd "$dir" && faketime -f "$(date -d "@$SOURCE_DATE_EPOCH" '+%Y-%m-%d %H:%M:%S')" "$@"); }
	rm -f "$out"
	frozen wixl -a x64 -D "Version=$number" -D "ProductCode=$(guid product "$VERSION")" -o "$out" ckptsidecar.wxs
	frozen msibuild "$out" -s ckptsidecar "The ckptsidecar authors" "x64;1033" "{$(guid package "$VERSION" "$(sha256sum <"$dir/ckptsidecar.exe")")}"
	while read -r query; do
		frozen msibuild "$out" -q "$query" </dev/null
	done <packaging/windows/msi.sql
}

need() {
	local missing=()
	for tool in "$@"; do command -v "$tool" >/dev/null || missing+=("$tool"); done
	[ ${#missing[@]} -eq 0 ] && return
	echo "dist.sh: not installed: ${missing[*]} (Debian: apt install wixl msitools faketime zip)" >&2
	exit 1
}

# npm_package is the TypeScript client as npm publishes it.
npm_package() {
	need npm
	local out
	out=$(realpath "$OUT")
	(cd clients/typescript && npm ci --silent && npm run --silent build && npm pack --silent --pack-destination "$out") >&2
}

all() {
	need wixl msibuild faketime zip npm python3
	python3 packaging/release.py check "$VERSION"
	rm -rf "$OUT"
	mkdir -p "$OUT"
	unix_archive linux amd64
	unix_archive linux arm64
	unix_archive darwin arm64
	windows_archive
	for arch in amd64 arm64; do
		package $arch deb
		package $arch rpm
	done
	msi
	python3 packaging/release.py wheel "$OUT"
	npm_package
	python3 packaging/release.py sbom "$VERSION" "$STAGES/linux-amd64/ckptsidecar" "$OUT/ckptsidecar-$VERSION.cdx.json"
	python3 packaging/release.py provenance "$VERSION" "$OUT"
	(cd "$OUT" && sha256sum -- * >SHA256SUMS)
}

mkdir -p "$OUT"
case ${1:-all} in
all) all ;;
deb) package "$(go env GOHOSTARCH)" deb ;;
msi) msi ;;
*)
	echo "dist.sh: $1 is not known: all, deb or msi" >&2
	exit 2
	;;
esac
ls -l "$OUT"

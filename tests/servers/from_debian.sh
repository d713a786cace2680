#!/usr/bin/env bash
# usage: from_debian.sh FOLDER PACKAGE
# Unpacks a package of Debian's unstable distribution, with its C library and all else it links to, into FOLDER/root.
# Nothing is installed on the machine, and root is not needed: apt-get works with lists and a cache of its own.
set -euo pipefail

folder=$(realpath -m "$1")
package=$2
apt="$folder/apt"
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$folder/root"
: >"$apt/status"

# Which mirror serves this machine is the machine's setting.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "main" && $1 ~ /\/debian\/?$/ { print $1; exit }')
if [ -z "$mirror" ]; then
    echo "apt-get has no mirror of Debian in its settings" >&2
    exit 1
fi
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$apt/sources.list"

options=(
    -o "Dir::Etc::SourceList=$apt/sources.list"
    -o "Dir::Etc::SourceParts=-"
    -o "Dir::Etc::PreferencesParts=-"
    -o "Dir::State=$apt/state"
    -o "Dir::State::Status=$apt/status"
    -o "Dir::Cache=$apt/cache"
    -o "Acquire::Check-Valid-Until=false"
    -o "Acquire::Languages=none"
    -o "Acquire::Retries=5"
    -o "APT::Sandbox::User=root"
    -o "Debug::NoLocking=true"
)

# A mirror that changes between the two steps answers 404: with new lists it works.
for attempt in 1 2 3; do
    if apt-get "${options[@]}" -qq update &&
        apt-get "${options[@]}" -qq -y --no-install-recommends --download-only install "$package"; then
        break
    fi
    if [ "$attempt" = 3 ]; then
        echo "$package could not be downloaded" >&2
        exit 1
    fi
    sleep 5
done

for archive in "$apt"/cache/archives/*.deb; do
    case "$archive" in
    */perl* | */libperl*) ;; # for scripts only
    *) dpkg -x "$archive" "$folder/root" ;;
    esac
done
rm -rf "$apt" "$folder"/root/usr/share/{doc,man,locale,perl}

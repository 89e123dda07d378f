#!/usr/bin/env bash
# publish.sh FOLDER: puts a built site on the branch gh-pages, beside those of other versions.
#
# A tag vX.Y.Z goes to X.Y/, anything else to dev/; stable is a link to the latest X.Y, and the first
# page leads there, or to dev/ as long as there is no release. switcher.json is what the menu of
# versions is made from. GITHUB_REF_TYPE, GITHUB_REF_NAME and GITHUB_REPOSITORY are those of a
# workflow.
set -euo pipefail

built=$(cd "$1" && pwd -P)
if [ "${GITHUB_REF_TYPE:-branch}" = tag ]; then
    version=$(cut -d. -f1-2 <<< "${GITHUB_REF_NAME#v}")
else
    version=dev
fi
owner=${GITHUB_REPOSITORY%%/*}
address=https://${owner,,}.github.io/${GITHUB_REPOSITORY#*/}

pages=$(mktemp -d)
trap 'git worktree remove --force "$pages"' EXIT
git fetch origin gh-pages || true
if git rev-parse --verify --quiet origin/gh-pages >/dev/null; then
    git worktree add --force -B gh-pages "$pages" origin/gh-pages
else
    git worktree add --force --detach "$pages"
    git -C "$pages" checkout -q --orphan gh-pages
    git -C "$pages" rm -rfq .
fi
cd "$pages"

rm -rf "$version"
cp -R "$built" "$version"
touch .nojekyll

versions=$(find . -maxdepth 1 -type d -name '[0-9]*.[0-9]*' -printf '%f\n' | sort -rV)
latest=$(head -n 1 <<< "$versions")
first=dev
if [ -n "$latest" ]; then
    ln -sfn "$latest" stable
    first=stable
fi
printf '<!doctype html>\n<meta http-equiv="refresh" content="0; url=%s/">\n' "$first" > index.html

{
    printf '[\n'
    for name in $versions; do
        preferred=false label=$name
        if [ "$name" = "$latest" ]; then preferred=true label="$name (stable)"; fi
        printf '  {"name": "%s", "version": "%s", "url": "%s/%s/", "preferred": %s},\n' \
            "$label" "$name" "$address" "$name" "$preferred"
    done
    printf '  {"name": "dev", "version": "dev", "url": "%s/dev/"}\n]\n' "$address"
} > switcher.json

git add -A
git -c user.name=github-actions -c user.email=github-actions@users.noreply.github.com \
    commit --quiet --allow-empty -m "Site: $version"
git push origin gh-pages

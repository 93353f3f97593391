package proxy

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// prefix starts the path of each proxied request.
const prefix = "/clusters/"

// maxPathBytes bounds the path of a request, as encoded by the caller.
const maxPathBytes = 8 << 10

var errPath = errors.New("the path must be /clusters/NAMESPACE/CLUSTER/ and a path of the workload cluster's API server")

// target is where a request goes.
type target struct {
	cluster types.NamespacedName
	// path and rawPath are those of the request to the workload cluster, as in url.URL.
	path, rawPath string
}

// targetOf returns the target of a request's URL. A path that proxies and servers may read in
// different ways is an error: one with empty, "." or ".." segments, also if they are encoded.
// Encoded slashes are allowed after the cluster only: names of proxied Services have them.
func targetOf(u *url.URL) (target, error) {
	escaped := u.EscapedPath()
	if len(escaped) > maxPathBytes {
		return target{}, fmt.Errorf("the path is longer than %d bytes", maxPathBytes)
	}
	rest, found := strings.CutPrefix(escaped, prefix)
	if !found {
		return target{}, errPath
	}
	namespace, rest, _ := strings.Cut(rest, "/")
	cluster, rest, hasPath := strings.Cut(rest, "/")
	// Names that are valid need no encoding, so an encoded one is none.
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(cluster)) > 0 {
		return target{}, errPath
	}
	t := target{cluster: types.NamespacedName{Namespace: namespace, Name: cluster}, rawPath: "/" + rest}
	if !hasPath {
		return target{}, errPath
	}
	var err error
	if t.path, err = url.PathUnescape(t.rawPath); err != nil {
		return target{}, fmt.Errorf("reading the path: %w", err)
	}
	segments := strings.Split(t.path, "/")[1:]
	for i, segment := range segments {
		isEnd := i == len(segments)-1
		if segment == "." || segment == ".." || segment == "" && !isEnd {
			return target{}, errors.New(`the path has an empty segment, "." or ".."`)
		}
	}
	return t, nil
}

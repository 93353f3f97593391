package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper remembers what it was told of kinds, but not that there is none. With
// --namespace each look into the cache asks whether its kind has namespaces, and
// controller-runtime's mapper makes its answer anew each time.
type mapper struct {
	meta.RESTMapper

	known sync.Map
}

// newMapper is what the manager makes its mapper by.
func newMapper(config *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	dynamic, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its kinds: %w", err)
	}
	return &mapper{RESTMapper: dynamic}, nil
}

// asked is what a mapping was asked for by.
type asked struct {
	kind     schema.GroupKind
	versions string
}

// RESTMapping implements meta.RESTMapper. Mappings are not to be changed.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if slices.Contains(versions, "") || len(versions) == 0 {
		// Which version is preferred may change.
		return m.RESTMapper.RESTMapping(kind, versions...) //nolint:wrapcheck // callers look at its kind
	}
	key := asked{kind, strings.Join(versions, ",")}
	if known, ok := m.known.Load(key); ok {
		return known.(*meta.RESTMapping), nil //nolint:forcetypeassert // nothing else is in it
	}
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err != nil {
		return nil, err //nolint:wrapcheck // callers look at its kind
	}
	m.known.Store(key, found)
	return found, nil
}

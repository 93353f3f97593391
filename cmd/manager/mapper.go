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

// cachingMapper caches successful mappings. With --namespace, each read from the cache asks
// whether its kind is namespaced, and controller-runtime's mapper allocates a new answer
// each time.
type cachingMapper struct {
	meta.RESTMapper

	mappings sync.Map
}

// newMapper is a MapperProvider of the manager.
func newMapper(config *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	dynamic, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its kinds: %w", err)
	}
	return &cachingMapper{RESTMapper: dynamic}, nil
}

// mappingKey has the arguments of RESTMapping.
type mappingKey struct {
	kind     schema.GroupKind
	versions string
}

// RESTMapping implements meta.RESTMapper. The result must not be changed.
func (m *cachingMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if slices.Contains(versions, "") || len(versions) == 0 {
		// The preferred version may change.
		return m.RESTMapper.RESTMapping(kind, versions...) // callers check its kind
	}
	key := mappingKey{kind, strings.Join(versions, ",")}
	if cached, ok := m.mappings.Load(key); ok {
		return cached.(*meta.RESTMapping), nil // the map has only mappings
	}
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err != nil {
		return nil, err // callers check its kind
	}
	m.mappings.Store(key, found)
	return found, nil
}

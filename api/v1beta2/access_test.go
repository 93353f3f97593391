package v1beta2_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// list returns n names as a YAML list in flow style.
func list(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	return "[" + strings.Join(names, ", ") + "]"
}

func TestAccess(t *testing.T) {
	binding := func(text string) string { return "spec: {access: {bindings: [" + text + "]}}" }
	const noAccess = "have no access through the gateway"
	cases := []creation{
		{"blank", "spec: {access: {}}", ""},
		{"users and groups", binding("{clusterRole: view, users: [ann@example.org, 'management:system:serviceaccount:ci:bot'], groups: [ops]}"), ""},
		{"a ClusterRole with a colon", binding("{clusterRole: 'shop:operators', groups: [ops]}"), ""},
		{"two ClusterRoles", binding("{clusterRole: view, groups: [ops]}, {clusterRole: edit, groups: [ops]}"), ""},
		{"as many names as possible", binding("{clusterRole: " + long(253) + ", users: " + list(256) + ", groups: " + list(256) + "}"), ""},
		{"a ClusterRole twice", binding("{clusterRole: view, users: [ann]}, {clusterRole: view, users: [bob]}"), "Duplicate value"},
		{"no ClusterRole", binding("{users: [ann]}"), "clusterRole: Required value"},
		{"a path as ClusterRole", binding("{clusterRole: a/b, users: [ann]}"), "clusterRole"},
		{"nobody", binding("{clusterRole: view}"), "a binding needs users or groups"},
		{"no users", binding("{clusterRole: view, users: []}"), "should have at least 1 items"},
		{"no bindings", "spec: {access: {bindings: []}}", "should have at least 1 items"},
		{"a blank user", binding("{clusterRole: view, users: ['']}"), "should be at least 1 chars long"},
		{"a user twice", binding("{clusterRole: view, users: [ann, ann]}"), "Duplicate value"},
		{"too many users", binding("{clusterRole: view, users: " + list(257) + "}"), "must have at most 256 items"},
		{"a long user", binding("{clusterRole: view, users: [" + long(513) + "]}"), "Too long"},
		{"an unknown field", "spec: {access: {proxy: true}}", `unknown field "spec.access.proxy"`},
		{"direct access", "spec: {access: {direct: {}}}", ""},
		{"direct access for ten minutes", "spec: {access: {direct: {ttlSeconds: 600}}}", ""},
		{"direct access for a week", "spec: {access: {direct: {ttlSeconds: 604800}}}", ""},
		{"direct access for too short a time", "spec: {access: {direct: {ttlSeconds: 599}}}", "greater than or equal to 600"},
		{"direct access for too long", "spec: {access: {direct: {ttlSeconds: 604801}}}", "less than or equal to 604800"},
	}
	testCreations(t, "ElementalCluster", cases)

	reserved := []creation{
		{"a user of every cluster", binding("{clusterRole: view, users: ['system:admin']}"), noAccess},
		{"a ServiceAccount of the workload cluster", binding("{clusterRole: view, users: ['system:serviceaccount:ci:bot']}"), "is management:system:serviceaccount:NAMESPACE:NAME"},
		{"a user of kubeadm", binding("{clusterRole: view, users: [ann, 'kubeadm:admin']}"), noAccess},
		{"a group of every cluster", binding("{clusterRole: view, groups: [ops, 'system:masters']}"), noAccess},
		{"a group of kubeadm", binding("{clusterRole: view, groups: ['kubeadm:cluster-admins']}"), noAccess},
	}
	testCreations(t, "ElementalCluster", reserved)

	inTemplate := make([]creation, 0, len(reserved)+1)
	for _, c := range append(reserved, cases[1]) {
		inTemplate = append(inTemplate, creation{c.name, "spec: {template: {" + c.spec + "}}", c.err})
	}
	testCreations(t, "ElementalClusterTemplate", inTemplate)
}

// Access may be given, changed and taken away at any time.
func TestAccessChanges(t *testing.T) {
	testChanges(t, "ElementalCluster", []change{
		{"given", "spec: {}", "spec: {access: {direct: {}}}", ""},
		{"taken away", "spec: {access: {bindings: [{clusterRole: view, groups: [ops]}]}}", "spec: {}", ""},
		{"changed", "spec: {access: {bindings: [{clusterRole: view, groups: [ops]}]}}", "spec: {access: {bindings: [{clusterRole: edit, groups: [ops]}]}}", ""},
	})
}

func TestDirectAccessTTL(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&infrav1.DirectAccess{}).TTL()).To(Equal(12 * time.Hour))
	g.Expect((&infrav1.DirectAccess{TTLSeconds: 600}).TTL()).To(Equal(10 * time.Minute))
}

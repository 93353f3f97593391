package manifests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
)

// In the guide, permissions are rows such as
//
//	| Secrets: get, list; its Lease `x`: update; their status: patch | all namespaces, or the watched one | why |
var (
	permissionTable = regexp.MustCompile(`(?s)\| Permission \| Where \| Used for \|\n\|---\|---\|---\|\n(.*?)\n\n`)
	oneByName       = regexp.MustCompile("^(?:the|its) (\\w+) `(.*)`$")
)

// whereOf returns what the guide says of where the manager has a role.
func whereOf(role *rbacv1.ClusterRole) string {
	switch {
	case role.Kind == "Role":
		return "the manager's namespace"
	case role.Name == "elemental-manager-role":
		return "all namespaces, or the watched one"
	default:
		return "everywhere"
	}
}

// permitted returns what the manager's roles permit, in sorted lines.
func permitted(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, obj := range objects(t, filepath.Join(release(t), "infrastructure-components.yaml"), nil) {
		_, isForOthers := rolesForOthers()[obj.GetName()]
		if isForOthers || obj.GetKind() != "ClusterRole" && obj.GetKind() != "Role" {
			continue
		}
		role := &rbacv1.ClusterRole{}
		convert(NewWithT(t), obj, role)
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				if resource == "*" {
					NewWithT(t).Expect(rule.APIGroups).To(ConsistOf("controlplane.cluster.x-k8s.io"))
					resource = "control planes"
				}
				for _, verb := range rule.Verbs {
					all = append(all, whereOf(role)+": "+verb+" "+strings.Join(append([]string{resource}, rule.ResourceNames...), " "))
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// resourcesOf returns the resources that a part of a row names. before are those of the parts
// before it.
func resourcesOf(names string, before []string) []string {
	if named := oneByName.FindStringSubmatch(names); named != nil {
		return []string{strings.ToLower(named[1]) + "s " + named[2]}
	}
	var found []string
	subresource := ""
	switch {
	case names == "their status":
		for _, name := range before {
			found = append(found, name+"/status")
		}
		return found
	case strings.HasPrefix(names, "status of "):
		names, subresource = strings.TrimPrefix(names, "status of "), "/status"
	case strings.HasPrefix(names, "finalizers of "):
		names, subresource = strings.TrimPrefix(names, "finalizers of "), "/finalizers"
	}
	for name := range strings.SplitSeq(strings.ReplaceAll(names, " and ", ", "), ", ") {
		found = append(found, strings.ToLower(name)+subresource)
	}
	return found
}

// The guide lists what the manager may, and nothing that it may not: whoever has its token has all
// of that.
func TestThreat101_PermissionsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "security.md"))
	g.Expect(err).NotTo(HaveOccurred())
	table := permissionTable.FindSubmatch(text)
	g.Expect(table).NotTo(BeNil())
	var listed []string
	for row := range strings.SplitSeq(string(table[1]), "\n") {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		g.Expect(cells).To(HaveLen(3), row)
		where, _, _ := strings.Cut(cells[1], ";")
		var before []string
		for part := range strings.SplitSeq(cells[0], "; ") {
			names, verbs, found := strings.Cut(part, ": ")
			g.Expect(found).To(BeTrue(), "%q names no verbs", part)
			resources := resourcesOf(names, before)
			before = append(before, resources...)
			for _, resource := range resources {
				for verb := range strings.SplitSeq(verbs, ", ") {
					listed = append(listed, where+": "+verb+" "+resource)
				}
			}
		}
	}
	slices.Sort(listed)
	listed = slices.Compact(listed)
	is := permitted(t)
	lacks := func(some, others []string) []string {
		return slices.DeleteFunc(slices.Clone(some), func(line string) bool { return slices.Contains(others, line) })
	}
	g.Expect(lacks(is, listed)).To(BeEmpty(), "the guide does not list it")
	g.Expect(lacks(listed, is)).To(BeEmpty(), "the manager does not have it")
}

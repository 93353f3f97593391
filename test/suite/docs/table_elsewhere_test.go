package docs_test

// entriesElsewhere are those of blocks that tests outside of this folder run.
func entriesElsewhere() map[string][]entry {
	turns := written{"hack/turns/turns.go", "groups"}
	release := made{"test/suite/release", "TestRelease"}
	return map[string][]entry{
		"README.md":          {{"Try it", "make quickstart", turns}},
		"docs/quickstart.md": {{"Run it", "make quickstart", turns}, {"Run it", "make quickstart-down", turns}},
		"docs/guide.md": walkedBy(walked{"test/suite/e2e/guide_test.go", "leads from boxes to a cluster"}, [][2]string{
			{"Tell clusterctl where the release is", "mkdir"},
			{"Install the provider", "ELEMENTAL_AGENT_API_URL"},
			{"Install the plugin of kubectl and the program that builds bundles", "cat"},
			{"Make a registration", "kubectl apply"},
			{"Build a bundle", "bundle build"},
			{"Pin the bundle", "kubectl apply"},
			{"Enrol each host", "kubectl elemental enrol"},
			{"Look at the hosts", "kubectl elemental hosts"},
			{"Make a cluster", "clusterctl generate cluster"},
			{"Get the kubeconfig", "clusterctl get kubeconfig"},
			{"Install a network plugin", "kubectl"},
			{"Look at the nodes", "kubectl"},
		}),
		"docs/adopting.md": walkedBy(walked{"test/suite/e2e/adopt_site_test.go", adoptionSpec}, [][2]string{
			{"Look at the cluster", "ssh"},
			{"Make a registration", "kubectl apply"},
			{"Install the agent on each host", "kubectl elemental enrol"},
			{"Declare the Nodes", "kubectl patch"},
			{"Approve the hosts", "kubectl get elementalhosts"},
			{"Bring the cluster's authorities into the management cluster", "umask"},
			{"Make the Cluster", "export POD_CIDR"},
			{"Look at the cluster again", "clusterctl describe"},
			{"Let Cluster API reset hosts", "kubectl annotate"},
		}),
		"docs/bundles.md": {{"Build one", "$ bundle build", like{"docs/guide.md", "Build a bundle", "bundle build"}}},
		"docs/release.md": {
			{"Build", "make release", release},
			{"Verify", "make verify-release", release},
			{"Publish", "make publish", release},
		},
		"docs/benchmarks.md": {
			{"A fleet at rest", "make bench-memory", benchmark("memory")},
			{"Enrolment", "make bench-enrol", benchmark("enrol")},
			{"Boot storm", "make bench-storm", benchmark("storm")},
			{"Claims", "make bench-claims", benchmark("claims")},
			{"A new plan", "make bench-plan", benchmark("plan")},
			{"Hostile hosts", "make bench-rogue", benchmark("rogue")},
			{"Many sites upgraded in place", "make bench-sites", benchmark("sites")},
			{"A manager dies", "make bench-failover", benchmark("failover")},
			{"A fleet with tunnels", "make bench-gateway", benchmark("gateway")},
			{"Tunnels", "make bench-tunnel", benchmark("tunnel")},
			{"Snapshots of etcd", "make bench-snapshots", benchmark("snapshots")},
		},
		"docs/upgrading.md": {
			{"Many sites", "kubectl label clusters", ran("TestWaves")},
			{"Many sites", "kubectl get elementalmachines", ran("TestWaves")},
			{"Many sites", "#!/bin/sh", ran("TestWaves")},
			{"Many sites", "for wave in", ran("TestWaves")},
		},
	}
}

// adoptionSpec is the end-to-end test that takes a cluster over.
const adoptionSpec = "is taken over as it runs"

func walkedBy(w walked, blocks [][2]string) []entry {
	var list []entry
	for _, b := range blocks {
		list = append(list, entry{b[0], b[1], w})
	}
	return list
}

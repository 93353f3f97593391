package docs_test

// entriesUnrun are those of blocks that no test runs, with the reasons.
func entriesUnrun() map[string][]entry {
	return map[string][]entry{
		"docs/agent.md": {
			{"Packages", "apt-get install", unrun{onHost, "it installs a package of a release in the host's system; the end-to-end tests of the label packages do so by dpkg"}},
		},
		"docs/install.md": {
			{"Enrol hosts", "install -D", unrun{onHost, "it installs the agent's configuration and package in the host's system, which runs the agent from then on"}},
		},
		"docs/backups.md": {
			{"Off the hosts", "age -d", unrun{outside, "the command age is another project's, and its module is no part of this one's; the agent's test decrypts the same file with the library"}},
			{"To a folder", "age -d", unrun{onHost, "it restarts the agent of the host that it decrypts to, and needs the command age, which is another project's"}},
			{"Restore", "kubectl -n sites patch", unrun{needsCluster, "its second command waits until etcd is restored on a host that has it; end-to-end tests of the label etcd confirm the same object"}},
			{"Several control-plane hosts", "kubectl elemental -n sites fence", unrun{needsCluster, "it fences a dead host of a control plane of three, and asks for its name; tests of the plugin in internal/kubectl fence such hosts"}},
			{"Several control-plane hosts", "kubectl -n sites wait", unrun{needsCluster, "it waits until kubeadm has set up the control plane on three hosts again, which virtual hosts can't"}},
			{"Machines that are gone", "kubectl elemental -n sites replace", unrun{needsCluster, "the host that is replaced has to be gone with its disk; the end-to-end test of the label etcd-machine does that"}},
		},
		"docs/benchmarks.md": {
			{"Benchmarks", "make bench ", unrun{takesHours, "the first of the commands measures everything for more than two hours, and the others need an idle machine"}},
			{"An upgrade in place", "make test-e2e", unrun{takesHours, "it upgrades a cluster on the hosts of the lab for half an hour, and writes the page with the figures"}},
			{"Whole clusters", "make bench-clusters", unrun{takesHours, "hundreds of clusters on virtual hosts take an idle machine; tests in test/harness/simulator make a few in the same way"}},
		},
		"docs/operating.md": {
			{"Everyday tasks", "kubectl --kubeconfig NEW", unrun{needsCluster, "it reads a Secret of a second management cluster, to which the end-to-end tests of the label move go"}},
			{"Everyday tasks", "kubectl wait", unrun{needsCluster, "it waits until hosts have reached a second management cluster; the end-to-end tests of the label move wait for the same condition"}},
			{"Restore a management cluster", "kubectl patch elementalhost NAME", unrun{needsCluster, "it is for a host whose key was rotated after a backup, which test/suite/move makes without kubectl"}},
			{"Backups of objects", "umask 077", unrun{outside, "it needs jq, which is another project's; TestRestoreFromABackupOfManifests in test/suite/move makes and restores such a backup in Go"}},
			{"Fence: release a dead host by force", "kubectl elemental release NAME", unrun{needsCluster, "it fences a host that has been silent for long with a Machine of a cluster that is served by another host"}},
			{"Hold, and prevent-reset", "kubectl annotate cluster NAME", unrun{needsCluster, "it has the Machines of a cluster leave their hosts as they are, and ends with a host that is held"}},
			{"Hold, and prevent-reset", "kubectl elemental release NAME", unrun{needsCluster, "it releases a host that was held when its Machine was deleted, which needs a Machine with a Node"}},
		},
		"docs/release.md": {
			{"A site without Internet", "tar -xf", unrun{takesHours, "it unpacks the archive of a whole release; TestRelease unpacks it too, and verifies it as make does"}},
			{"Add images", "kubeadm config", unrun{outside, "the images come from the Internet; TestImages of hack/release adds images from a registry of its own, and TestRelease runs the same target"}},
			{"A site without Internet", "REGISTRY=", unrun{outside, "skopeo is another project's, and the registry the reader's; TestRelease pushes the same images to a registry"}},
		},
		"docs/tunnel.md": {
			{"Access for users", "kubectl config set-cluster", unrun{needsCluster, "it asks a workload cluster behind a tunnel who the user is; the end-to-end tests of the label tunnel-users do"}},
			{"Direct access", "curl", unrun{needsCluster, "it gets certificates for the API servers of hosts behind a tunnel, and connects to them; tests in internal/gateway/direct get such a kubeconfig"}},
			{"Direct access", "openssl", unrun{needsCluster, "the gateway has the request signed by a cluster behind a tunnel; csr_test.go in internal/gateway/direct sends such requests"}},
		},
		"docs/upgrading.md": {
			{"Restore etcd by hand", "systemctl stop", unrun{onHost, "it replaces the data of etcd by a checkpoint on the only host of a control plane whose etcd is broken"}},
		},
		"test/README.md": {
			{"Run one end-to-end scenario on real hosts", "make test-e2e-labels", commands},
			{"Run one end-to-end scenario on real hosts", "make test-e2e E2E_FOCUS", unrun{takesHours, "these are end-to-end tests themselves: they need root, and hosts in Docker for half an hour"}},
		},
		"test/harness/lab/README.md": {
			{"Commands", "go run", unrun{onHost, "a lab needs root and Docker, and exists once on a machine; end-to-end tests use the package below the command"}},
			{"A management cluster by kind", "LAB_MANAGEMENT=kind", unrun{onHost, "a lab needs root and Docker, and exists once on a machine; the second line is an end-to-end test itself, and a turn of CI"}},
		},
	}
}

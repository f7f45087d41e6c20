package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// A scheduler is the default profile; each scenario gets a cluster of its own.
type scheduler struct {
	profile  *config.KubeSchedulerProfile
	registry frameworkruntime.Registry
	client   kubernetes.Interface
}

func newScheduler() (*scheduler, error) {
	configuration, err := latest.Default()
	if err != nil {
		return nil, err
	}
	return &scheduler{
		profile:  &configuration.Profiles[0],
		registry: plugins.NewInTreeRegistry(),
		client:   fake.NewSimpleClientset(), // nobody calls it: objects go straight into the informers' stores
	}, nil
}

// filters returns the names of all plugins in the order in which they filter.
func (s *scheduler) filters() []string {
	var names []string
	for _, plugin := range s.profile.Plugins.MultiPoint.Enabled {
		names = append(names, plugin.Name)
	}
	return names
}

func (s *scheduler) weights() map[string]int32 {
	weights := map[string]int32{}
	for _, plugin := range s.profile.Plugins.MultiPoint.Enabled {
		if plugin.Weight != 0 {
			weights[plugin.Name] = plugin.Weight
		}
	}
	return weights
}

// A cluster is what the scheduler knows while it answers one scenario.
type cluster struct {
	framework framework.Framework
	cache     internalcache.Cache
	snapshot  *internalcache.Snapshot
	nominated nominated
	waiting   map[string]*v1.Pod
	ctx       context.Context
	close     context.CancelFunc
}

func (s *scheduler) newCluster(asked request) (*cluster, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{
		cache:     internalcache.New(ctx, nil, utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload)),
		snapshot:  internalcache.NewEmptySnapshot(),
		nominated: nominated{},
		waiting:   map[string]*v1.Pod{},
		ctx:       ctx,
		close:     cancel,
	}
	informers := informers.NewSharedInformerFactory(s.client, 0)
	if err := c.load(asked, informers); err != nil {
		cancel()
		return nil, err
	}
	resources := informers.Resource().V1()
	slices, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		SliceInformer: resources.ResourceSlices(), KubeClient: s.client,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), resources.ResourceClaims().Informer(), "ResourceClaim", "", nil)
	c.framework, err = frameworkruntime.NewFramework(ctx, s.registry, s.profile,
		frameworkruntime.WithClientSet(s.client),
		frameworkruntime.WithInformerFactory(informers),
		frameworkruntime.WithSnapshotSharedLister(c.snapshot),
		frameworkruntime.WithSharedDRAManager(dynamicresources.NewDRAManager(ctx, claims, slices, informers)),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(informers.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithPodGroupManager(c.cache),
		frameworkruntime.WithPodNominator(c.nominated),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		cancel()
		return nil, err
	}
	return c, nil
}

// load puts nodes and bound pods into the scheduler's cache and all else into the stores that plugins list.
func (c *cluster) load(asked request, informers informers.SharedInformerFactory) error {
	grandfathered := map[string]bool{}
	for _, name := range asked.Grandfathered {
		grandfathered[name] = true
	}
	var pods []*v1.Pod
	for i, raw := range asked.Objects {
		object, err := read(raw, grandfathered)
		if err != nil {
			return fmt.Errorf("objects[%d]: %w", i, err)
		}
		switch o := object.(type) {
		case *v1.Node:
			c.cache.AddNode(klog.FromContext(c.ctx), o)
		case *v1.Pod:
			pods = append(pods, o)
		default:
			if err := storeOf(object, informers).Add(object); err != nil {
				return fmt.Errorf("objects[%d]: %w", i, err)
			}
		}
	}
	for _, pod := range pods {
		name := pod.Namespace + "/" + pod.Name
		switch {
		case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
			// The scheduler's informers leave finished pods out.
		case pod.Spec.NodeName == "":
			c.waiting[name] = pod
			if err := c.nominated.add(pod); err != nil {
				return fmt.Errorf("pod %s: %w", name, err)
			}
		default:
			if err := c.cache.AddPod(klog.FromContext(c.ctx), pod); err != nil {
				return fmt.Errorf("pod %s: %w", name, err)
			}
		}
	}
	return nil
}

func storeOf(object runtime.Object, informers informers.SharedInformerFactory) cache.Indexer {
	switch object.(type) {
	case *v1.Namespace:
		return informers.Core().V1().Namespaces().Informer().GetIndexer()
	case *v1.Service:
		return informers.Core().V1().Services().Informer().GetIndexer()
	case *v1.ReplicationController:
		return informers.Core().V1().ReplicationControllers().Informer().GetIndexer()
	case *appsv1.ReplicaSet:
		return informers.Apps().V1().ReplicaSets().Informer().GetIndexer()
	case *appsv1.StatefulSet:
		return informers.Apps().V1().StatefulSets().Informer().GetIndexer()
	case *policyv1.PodDisruptionBudget:
		return informers.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer()
	}
	panic(fmt.Sprintf("no store for a %T", object))
}

// place counts a pod on the node that berth chose.
func (c *cluster) place(name, node string) error {
	pod := c.waiting[name].DeepCopy()
	pod.Spec.NodeName = node
	delete(c.waiting, name)
	return c.cache.AddPod(klog.FromContext(c.ctx), pod)
}

// A refusal is the status of the first filter that refused a node.
type refusal struct {
	Plugin       string   `json:"plugin"`
	Reasons      []string `json:"reasons"`
	Unresolvable bool     `json:"unresolvable"`
}

// A verdict is what kube-scheduler finds for a pod: plugins that skipped the pod have no score.
type verdict struct {
	Pod        string                      `json:"pod"`
	Feasible   []string                    `json:"feasible"`
	Infeasible map[string]refusal          `json:"infeasible"`
	Scores     map[string]map[string]int64 `json:"scores"`
	Totals     map[string]int64            `json:"totals"`
	Preemption *preempting                 `json:"preemption,omitempty"`
}

// evaluate filters all nodes and scores the feasible ones, also where there is only one. Where there is none it
// plans victims, if asked to.
func (c *cluster) evaluate(name string, preempt bool) (verdict, error) {
	v := verdict{
		Pod: name, Feasible: []string{}, Infeasible: map[string]refusal{},
		Scores: map[string]map[string]int64{}, Totals: map[string]int64{},
	}
	pod := c.waiting[name]
	if pod == nil {
		return v, fmt.Errorf("is not waiting")
	}
	if err := c.cache.UpdateSnapshot(klog.FromContext(c.ctx), c.snapshot); err != nil {
		return v, err
	}
	feasible, err := c.filter(pod, &v)
	if err != nil {
		return v, err
	}
	if len(feasible.nodes) == 0 {
		if preempt {
			v.Preemption, err = c.preempt(pod, feasible)
		}
		return v, err
	}
	return v, c.score(pod, feasible, &v)
}

// A filtered is the feasible nodes, why the others are not, and what the filters left for the scores.
type filtered struct {
	nodes    []fwk.NodeInfo
	state    fwk.CycleState
	statuses *framework.NodeToStatus
}

// filter follows kube-scheduler's findNodesThatFitPod, without extenders and sampling.
func (c *cluster) filter(pod *v1.Pod, v *verdict) (filtered, error) {
	found := filtered{state: framework.NewCycleState(), statuses: framework.NewDefaultNodeToStatus()}
	nodes, err := c.snapshot.NodeInfos().List()
	if err != nil {
		return found, err
	}
	result, status, unscheduled := c.framework.RunPreFilterPlugins(c.ctx, found.state, pod)
	if !status.IsSuccess() && !status.IsRejected() {
		return found, status.AsError()
	}
	for _, node := range nodes {
		name := node.Node().Name
		refused := status
		if status.IsSuccess() {
			if result.AllNodes() || result.NodeNames.Has(name) {
				refused = c.framework.RunFilterPluginsWithNominatedPods(c.ctx, found.state, pod, node)
			} else {
				refused = outside(unscheduled)
			}
		}
		if refused.IsSuccess() {
			found.nodes = append(found.nodes, node)
			v.Feasible = append(v.Feasible, name)
			continue
		}
		if !refused.IsRejected() {
			return found, refused.AsError()
		}
		found.statuses.Set(name, refused)
		v.Infeasible[name] = refusal{
			Plugin:       refused.Plugin(),
			Reasons:      refused.Reasons(),
			Unresolvable: refused.Code() == fwk.UnschedulableAndUnresolvable,
		}
	}
	return found, nil
}

// outside is the status of nodes that the PreFilter plugins left no filter to look at.
func outside(plugins sets.Set[string]) *fwk.Status {
	names := slices.Sorted(maps.Keys(plugins))
	status := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", names))
	status.SetPlugin(names[0])
	return status
}

func (c *cluster) score(pod *v1.Pod, feasible filtered, v *verdict) error {
	if status := c.framework.RunPreScorePlugins(c.ctx, feasible.state, pod, feasible.nodes); !status.IsSuccess() {
		return status.AsError()
	}
	scored, status := c.framework.RunScorePlugins(c.ctx, feasible.state, pod, feasible.nodes)
	if !status.IsSuccess() {
		return status.AsError()
	}
	weights := c.framework.ListPlugins().Score.Enabled
	for _, node := range scored {
		parts := map[string]int64{}
		for _, part := range node.Scores {
			at := slices.IndexFunc(weights, func(p config.Plugin) bool { return p.Name == part.Name })
			parts[part.Name] = part.Score / int64(weights[at].Weight)
		}
		v.Scores[node.Name] = parts
		v.Totals[node.Name] = node.TotalScore
	}
	return nil
}

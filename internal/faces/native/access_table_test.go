package native

import "github.com/gopherqueue/gq/internal/access"

// callNeeds is what a call requires.
type callNeeds struct {
	needs access.Scope // one of these on its queue
	whole bool         // on all queues
	lists bool         // names no queue: foreign objects are omitted rather than rejected
	open  bool         // needs no token
	body  string       // with placeholders $QUEUE, $JOB (running), $DONE (ended), $LEASE and $NEW
}

const anyScope = access.Submit | access.Work | access.Read | access.Admin

// rpcAccess has a row for every RPC.
var rpcAccess = map[string]callNeeds{
	"JobsService/Submit":      {needs: access.Submit, body: `{"spec":{"queue":"$QUEUE","type":"t"}}`},
	"JobsService/SubmitBatch": {needs: access.Submit, body: `{"specs":[{"queue":"$QUEUE","type":"t"}]}`},
	"JobsService/SubmitGraph": {needs: access.Submit, body: `{"drafts":[{"spec":{"queue":"$QUEUE","type":"t"}}]}`},
	"JobsService/Get":         {needs: access.Read, body: `{"id":"$DONE"}`},
	"JobsService/List":        {needs: access.Read, body: `{"query":{"queue":"$QUEUE"}}`},
	"JobsService/Update":      {needs: access.Submit, body: `{"id":"$JOB","setTags":{"a":"b"}}`},
	"JobsService/Cancel":      {needs: access.Submit, body: `{"id":"$JOB"}`},
	"JobsService/CancelWhere": {needs: access.Submit, body: `{"query":{"queue":"$QUEUE","statuses":["STATUS_DELAYED"]}}`},
	"JobsService/Replay":      {needs: access.Submit, body: `{"id":"$DONE"}`},
	"JobsService/Wait":        {needs: access.Read, body: `{"id":"$DONE"}`},
	"JobsService/Explain":     {needs: access.Read, body: `{"id":"$DONE"}`},
	"JobsService/History":     {needs: access.Read, body: `{"id":"$DONE"}`},
	"JobsService/Count":       {needs: access.Read, body: `{"queues":["$QUEUE"]}`},
	"JobsService/Edit":        {needs: access.Submit, body: `{"id":"$JOB","queue":"$QUEUE"}`},
	"JobsService/Reschedule":  {needs: access.Submit, body: `{"id":"$JOB"}`},
	"JobsService/ReplayWhere": {needs: access.Submit, body: `{"query":{"queue":"$QUEUE","statuses":["STATUS_DEAD_LETTER"]}}`},
	"JobsService/CountWhere":  {needs: access.Read, body: `{"query":{"queue":"$QUEUE"}}`},
	"JobsService/Purge":       {needs: access.Admin, body: `{"id":"$DONE"}`},
	"JobsService/PurgeWhere":  {needs: access.Admin, body: `{"query":{"queue":"$QUEUE","statuses":["STATUS_DEAD_LETTER"]}}`},
	"JobsService/Stats":       {needs: access.Read, lists: true, body: `{}`},

	"WorkersService/Claim":         {needs: access.Work, body: `{"worker":"x","queues":["$QUEUE"],"types":["none"]}`},
	"WorkersService/Start":         {needs: access.Work, body: `{"lease":{"id":"$LEASE"}}`},
	"WorkersService/Heartbeat":     {needs: access.Work, body: `{"beats":[{"lease":{"id":"$LEASE"}}]}`},
	"WorkersService/Settle":        {needs: access.Work, body: `{"outcomes":[{"lease":{"id":"$LEASE"},"complete":{}}]}`},
	"WorkersService/Work":          {needs: access.Work},
	"WorkersService/ListWorkers":   {needs: access.Read, lists: true, body: `{}`},
	"WorkersService/WorkerStopped": {needs: access.Work, lists: true, body: `{"worker":"stopped"}`},

	"QueuesService/GetQueue":      {needs: anyScope, body: `{"name":"$QUEUE"}`},
	"QueuesService/ListQueues":    {needs: access.Read, lists: true, body: `{}`},
	"QueuesService/SetQueue":      {needs: access.Admin, body: `{"name":"$QUEUE","maxDepth":100000}`},
	"QueuesService/PauseQueue":    {needs: access.Admin, body: `{"name":"$QUEUE"}`},
	"QueuesService/ResumeQueue":   {needs: access.Admin, body: `{"name":"$QUEUE"}`},
	"QueuesService/DeleteQueue":   {needs: access.Admin, body: `{"name":"$QUEUE"}`},
	"QueuesService/ListQueueKeys": {needs: access.Read, body: `{"queue":"$QUEUE"}`},
	"QueuesService/SetQueueKey":   {needs: access.Admin, body: `{"queue":"$QUEUE","key":"k","limit":5}`},
	"QueuesService/UnsetQueueKey": {needs: access.Admin, body: `{"queue":"$QUEUE","key":"none"}`},
	"QueuesService/QueueHistory":  {needs: access.Read, body: `{"queues":["$QUEUE"]}`},
	"QueuesService/QueueActivity": {needs: access.Read, body: `{"queues":["$QUEUE"]}`},
	"QueuesService/ListPools":     {needs: access.Read, whole: true, body: `{}`},
	"QueuesService/SetPool":       {needs: access.Admin, whole: true, body: `{"name":"p","capacity":1}`},

	"InboxService/ReadInbox":      {needs: access.Read, whole: true, body: `{}`},
	"InboxService/RetryRefused":   {needs: access.Admin, whole: true, body: `{"all":true}`},
	"InboxService/DiscardRefused": {needs: access.Admin, whole: true, body: `{"all":true}`},

	"SchedulesService/GetSchedule":      {needs: access.Read, body: `{"name":"$QUEUE"}`},
	"SchedulesService/ListSchedules":    {needs: access.Read, lists: true, body: `{}`},
	"SchedulesService/SetSchedule":      {needs: access.Admin, body: `{"schedule":{"name":"$QUEUE","every":"3600s","template":{"queue":"$QUEUE","type":"t"}}}`},
	"SchedulesService/PauseSchedule":    {needs: access.Admin, body: `{"name":"$QUEUE"}`},
	"SchedulesService/ResumeSchedule":   {needs: access.Admin, body: `{"name":"$QUEUE"}`},
	"SchedulesService/TriggerSchedule":  {needs: access.Submit, body: `{"name":"$QUEUE"}`},
	"SchedulesService/BackfillSchedule": {needs: access.Submit, body: `{"name":"$QUEUE","from":"2020-01-01T00:00:00Z","to":"2020-01-01T01:00:00Z"}`},
	"SchedulesService/DeleteSchedule":   {needs: access.Admin, body: `{"name":"$QUEUE"}`},

	"WorkflowsService/SubmitWorkflow": {needs: access.Submit, body: `{"jobs":[{"ref":"a","spec":{"queue":"$QUEUE","type":"t"}}]}`},
	"WorkflowsService/GetWorkflow":    {needs: access.Read, body: `{"id":"$FLOW"}`},
	"WorkflowsService/ListWorkflows":  {needs: access.Read, lists: true, body: `{"limit":"100"}`},
	"WorkflowsService/CancelWorkflow": {needs: access.Submit, body: `{"id":"$FLOW"}`},
	"WorkflowsService/RetryWorkflow":  {needs: access.Submit, body: `{"id":"$OVER"}`},
	"WorkflowsService/AddToWorkflow":  {needs: access.Submit, body: `{"id":"$FLOW","jobs":[{"ref":"a","spec":{"queue":"$QUEUE","type":"t"}}]}`},
	"WorkflowsService/SignalWorkflow": {needs: access.Submit, body: `{"id":"$FLOW","name":"$QUEUE","value":"MQ=="}`},

	"EventsService/Subscribe":  {needs: access.Read, body: `{"queues":["$QUEUE"]}`},
	"EventsService/ListEvents": {needs: access.Read, whole: true, body: `{}`},
	"EventsService/LastEvent":  {needs: access.Read, lists: true, body: `{}`},

	"AdminService/CreateToken":      {needs: access.Admin, whole: true, body: `{"name":"$NEW","grants":[{"scopes":["read"],"queues":["*"]}]}`},
	"AdminService/ListTokens":       {needs: access.Admin, whole: true, body: `{}`},
	"AdminService/RevokeToken":      {needs: access.Admin, whole: true, body: `{"token":"none"}`},
	"AdminService/ListDeliveries":   {needs: access.Read, lists: true, body: `{}`},
	"AdminService/RetryDelivery":    {needs: access.Submit, body: `{"id":"$DELIVERY"}`},
	"AdminService/GetWebhookSecret": {needs: access.Admin, whole: true, body: `{}`},
	"AdminService/CreateBackup":     {needs: access.Admin, whole: true, body: `{}`},
	"AdminService/ListAudit":        {needs: access.Admin, whole: true, body: `{}`},
}

// routeAccess has a row for every route.
var routeAccess = map[string]callNeeds{
	"POST /v1/jobs":                 {needs: access.Submit, body: `{"queue":"$QUEUE","type":"t"}`},
	"POST /v1/jobs/batch":           {needs: access.Submit, body: `{"jobs":[{"queue":"$QUEUE","type":"t"}]}`},
	"GET /v1/jobs":                  {needs: access.Read, body: `?queue=$QUEUE`},
	"POST /v1/jobs/cancel":          {needs: access.Submit, body: `{"queue":"$QUEUE","states":["DELAYED"]}`},
	"POST /v1/jobs/purge":           {needs: access.Admin, body: `{"queue":"$QUEUE","states":["DEAD_LETTER"]}`},
	"POST /v1/jobs/replay":          {needs: access.Submit, body: `{"queue":"$QUEUE","states":["DEAD_LETTER"]}`},
	"POST /v1/jobs/count":           {needs: access.Read, body: `{"queue":"$QUEUE"}`},
	"POST /v1/jobs/{id}/edit":       {needs: access.Submit, body: `{"queue":"$QUEUE"}`},
	"POST /v1/jobs/{id}/reschedule": {needs: access.Submit, body: `{}`},
	"DELETE /v1/queues/{name}":      {needs: access.Admin},
	"GET /v1/jobs/{id}":             {needs: access.Read},
	"DELETE /v1/jobs/{id}":          {needs: access.Admin},
	"PATCH /v1/jobs/{id}":           {needs: access.Submit, body: `{"tags":{"a":"b"}}`},
	"POST /v1/jobs/{id}/cancel":     {needs: access.Submit, body: `{}`},
	"POST /v1/jobs/{id}/replay":     {needs: access.Submit},
	"GET /v1/jobs/{id}/events":      {needs: access.Read},
	"GET /v1/jobs/{id}/explain":     {needs: access.Read},
	"GET /v1/jobs/{id}/wait":        {needs: access.Read, body: `?timeout=1ms`},
	"POST /v1/claim":                {needs: access.Work, body: `{"worker":"x","queues":["$QUEUE"],"types":["none"]}`},
	"POST /v1/leases/{id}/start":    {needs: access.Work}, "POST /v1/leases/{id}/heartbeat": {needs: access.Work},
	"POST /v1/leases/{id}/complete": {needs: access.Work}, "POST /v1/leases/{id}/fail": {needs: access.Work, body: `{"message":"x"}`},
	"POST /v1/leases/{id}/release": {needs: access.Work, body: `{}`},

	"GET /v1/queues":                      {needs: access.Read, lists: true},
	"GET /v1/queues/{name}":               {needs: access.Read},
	"GET /v1/queues/{name}/keys":          {needs: access.Read},
	"GET /v1/queues/{name}/history":       {needs: access.Read},
	"GET /v1/history":                     {needs: access.Read, lists: true},
	"GET /v1/activity":                    {needs: access.Read, lists: true},
	"PUT /v1/queues/{name}/keys/{key}":    {needs: access.Admin, body: `{"limit":5}`},
	"DELETE /v1/queues/{name}/keys/{key}": {needs: access.Admin},
	"PATCH /v1/queues/{name}":             {needs: access.Admin, body: `{"max_depth":100000}`},
	"PUT /v1/queues/{name}":               {needs: access.Admin, body: `{"max_depth":100000}`},
	"POST /v1/queues/{name}/declare":      {needs: access.Admin},
	"POST /v1/queues/{name}/pause":        {needs: access.Admin},
	"POST /v1/queues/{name}/resume":       {needs: access.Admin},
	"GET /v1/pools":                       {needs: access.Read, whole: true},
	"PUT /v1/pools/{name}":                {needs: access.Admin, whole: true, body: `{"capacity":1}`},

	"GET /v1/inbox":          {needs: access.Read, whole: true},
	"POST /v1/inbox/retry":   {needs: access.Admin, whole: true, body: `{"all":true}`},
	"POST /v1/inbox/discard": {needs: access.Admin, whole: true, body: `{"all":true}`},

	"GET /v1/schedules":                  {needs: access.Read, lists: true},
	"GET /v1/schedules/{name}":           {needs: access.Read},
	"PUT /v1/schedules/{name}":           {needs: access.Admin, body: `{"every":"1h","job":{"queue":"$QUEUE","type":"t"}}`},
	"POST /v1/schedules/{name}/declare":  {needs: access.Admin, body: `{"every":"1h","job":{"queue":"$QUEUE","type":"t"}}`},
	"POST /v1/schedules/{name}/pause":    {needs: access.Admin},
	"POST /v1/schedules/{name}/resume":   {needs: access.Admin},
	"POST /v1/schedules/{name}/trigger":  {needs: access.Submit},
	"POST /v1/schedules/{name}/backfill": {needs: access.Submit, body: `{"from":"2020-01-01T00:00:00Z","to":"2020-01-01T01:00:00Z"}`},
	"DELETE /v1/schedules/{name}":        {needs: access.Admin},

	"POST /v1/workflows":                     {needs: access.Submit, body: `{"jobs":[{"ref":"a","queue":"$QUEUE","type":"t"}]}`},
	"GET /v1/workflows":                      {needs: access.Read, lists: true, body: `?limit=100`},
	"GET /v1/workflows/{id}":                 {needs: access.Read},
	"GET /v1/workflows/{id}/graph.svg":       {needs: access.Read},
	"GET /v1/workflows/{id}/graph.txt":       {needs: access.Read},
	"POST /v1/workflows/{id}/cancel":         {needs: access.Submit, body: `{}`},
	"POST /v1/workflows/{id}/retry":          {needs: access.Submit},
	"POST /v1/workflows/{id}/jobs":           {needs: access.Submit, body: `{"jobs":[{"ref":"a","queue":"$QUEUE","type":"t"}]}`},
	"POST /v1/workflows/{id}/signals/{name}": {needs: access.Submit, body: `{"value":1}`},

	"GET /v1/workers": {needs: access.Read, lists: true}, "DELETE /v1/workers/{name}": {needs: access.Work, lists: true},
	"GET /v1/stats":  {needs: access.Read, lists: true},
	"GET /v1/events": {needs: access.Read, body: `?queue=$QUEUE`}, "GET /v1/events/ws": {needs: access.Read, body: `?queue=$QUEUE`},
	"GET /metrics": {needs: access.Read, whole: true},

	"POST /v1/tokens":                         {needs: access.Admin, whole: true, body: `{"name":"$NEW","grants":[{"scopes":["read"],"queues":["*"]}]}`},
	"GET /v1/tokens":                          {needs: access.Admin, whole: true},
	"GET /v1/audit":                           {needs: access.Admin, whole: true},
	"DELETE /v1/tokens/{name}":                {needs: access.Admin, whole: true},
	"GET /v1/webhooks/deliveries":             {needs: access.Read, lists: true},
	"POST /v1/webhooks/deliveries/{id}/retry": {needs: access.Submit},
	"GET /v1/webhooks/secret":                 {needs: access.Admin, whole: true},
	"POST /v1/backups":                        {needs: access.Admin, whole: true},

	"GET /healthz": {open: true}, "GET /readyz": {open: true}, "GET /docs": {open: true}, "GET /openapi.json": {open: true},
}

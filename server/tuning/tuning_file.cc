#include "server/tuning/tuning_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gemmd/v1/tuning.pb.h"
#include "proto/convert.h"

namespace gemmd {
namespace {

constexpr int kFormatVersion = 2;
constexpr mode_t kEverybodyReads = 0644;
constexpr int kMaxKept = 100;  // old files beside the one in use

int64_t MaxBytes(size_t planners) { return TuningFile::kMaxBytes * static_cast<int64_t>(planners); }

std::string Named(const std::string& path) { return "tuning-file=" + path; }

std::optional<ComputeMode> ModeFromName(const std::string& name) {
  for (const ComputeMode mode : {ComputeMode::kIeee, ComputeMode::kTf32, ComputeMode::kTf32x3}) {
    if (name == Name(mode)) return mode;
  }
  return std::nullopt;
}

constexpr const char* kBiasNames[] = {"none", "column", "row"};

std::optional<BiasAxis> BiasFromName(const std::string& name) {
  for (const BiasAxis axis : {BiasAxis::kNone, BiasAxis::kPerColumn, BiasAxis::kPerRow}) {
    if (name == kBiasNames[static_cast<int>(axis)]) return axis;
  }
  return std::nullopt;
}

v1::TunedProblem ToProto(const TuningEntry& entry) {
  const GemmProblem& p = entry.problem;
  v1::TunedProblem out;
  out.set_m(static_cast<int32_t>(p.m));
  out.set_n(static_cast<int32_t>(p.n));
  out.set_k(static_cast<int32_t>(p.k));
  out.set_batch(static_cast<int32_t>(p.batch));
  out.set_layout(OpsName(p));
  out.set_shared_a(p.batch > 1 && p.a.batch_stride == 0);
  out.set_shared_b(p.batch > 1 && p.b.batch_stride == 0);
  out.set_type_a(std::string(Name(p.type_a)));
  out.set_type_b(std::string(Name(p.type_b)));
  out.set_type_d(std::string(Name(p.type_d)));
  out.set_compute_mode(std::string(Name(p.mode)));
  out.set_alpha(p.alpha);
  out.set_beta(p.beta);
  out.set_bias(kBiasNames[static_cast<int>(p.bias)]);
  out.set_activation(std::string(Name(p.act)));
  for (const MeasuredPlan& measured : entry.plans) {
    v1::TunedPlan* const plan = out.add_plans();
    plan->set_kernel(std::string(measured.plan.kernel()));
    plan->set_stages(measured.plan.stages);
    plan->set_split_k(measured.plan.split_k);
    plan->set_pair(measured.plan.pair);
    plan->set_seconds(measured.seconds);
  }
  return out;
}

// nullopt for what no server has written.
std::optional<TuningEntry> FromProto(const v1::TunedProblem& in) {
  const std::optional<DType> a = DTypeFromName(in.type_a()), b = DTypeFromName(in.type_b()),
                             d = DTypeFromName(in.type_d());
  const std::optional<ComputeMode> mode = ModeFromName(in.compute_mode());
  const std::optional<BiasAxis> bias = BiasFromName(in.bias());
  const std::optional<Activation> act = ActivationFromName(in.activation());
  const std::string& layout = in.layout();
  if (!a || !b || !d || !mode || !bias || !act || layout.size() != 2 ||
      layout.find_first_not_of("NT") != std::string::npos) {
    return std::nullopt;
  }
  GemmProblem p;
  p.m = in.m(), p.n = in.n(), p.k = in.k(), p.batch = in.batch();
  p.op_a = layout[0] == 'T' ? Op::kT : Op::kN;
  p.op_b = layout[1] == 'T' ? Op::kT : Op::kN;
  p.type_a = *a, p.type_b = *b, p.type_d = *d;
  p.mode = *mode;
  p.alpha = in.alpha(), p.beta = in.beta();
  p.bias = *bias, p.act = *act;
  if (p.m < 1 || p.n < 1 || p.k < 0 || p.batch < 1) return std::nullopt;
  p = WithPackedLayouts(p);
  if (in.shared_a()) p.a.batch_stride = 0;
  if (in.shared_b()) p.b.batch_stride = 0;
  if (!ValidateProblem(p).ok()) return std::nullopt;
  TuningEntry entry{.problem = p, .plans = {}};
  for (const v1::TunedPlan& plan : in.plans()) {
    const MeasuredPlan measured{.plan = {.row = RowByName(plan.kernel()),
                                         .stages = plan.stages(),
                                         .split_k = plan.split_k(),
                                         .pair = plan.pair()},
                                .seconds = plan.seconds()};
    entry.plans.push_back(measured);
  }
  return entry;
}

Status Damaged(const std::string& path, const std::string& why) {
  return {StatusCode::kDataLoss, Named(path) + " is damaged: " + why};
}

// And what fstat() said of it.
StatusOr<std::string> ReadRegular(const std::string& path, int64_t max_bytes, struct stat* info) {
  // Without O_NONBLOCK, opening a pipe would wait for somebody to write.
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const auto unreadable = [&path](const Status& why) {
    const bool absent = why.code() == StatusCode::kNotFound;
    return Status(absent ? why.code() : StatusCode::kPermissionDenied,
                  Named(path) + ": " + why.message());
  };
  if (file.fd() < 0 || fstat(file.fd(), info) != 0) return unreadable(SystemError(path, "read"));
  if (!S_ISREG(info->st_mode)) {
    return InvalidArgument("tuning-file", Named(path) + " is not a regular file");
  }
  const int64_t bytes = info->st_size;
  if (bytes > max_bytes) {
    return ResourceExhausted(Named(path) + " has " + std::to_string(bytes) +
                             " bytes, more than the limit " + std::to_string(max_bytes));
  }
  StatusOr<std::string> text = ReadText(file, path, max_bytes);
  if (!text.ok()) return unreadable(text.status());
  return text;
}

// Text from a file that may hold anything, for a line of the log.
std::string Printable(std::string_view text) {
  constexpr size_t kMaxLength = 80;
  std::string out(text.substr(0, kMaxLength));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > kMaxLength ? out + "..." : out;
}

// What the parser says, without the part of the file that it quotes.
std::string FirstLine(std::string_view text) { return Printable(text.substr(0, text.find('\n'))); }

StatusOr<v1::TuningFile> Parse(const std::string& path, const std::string& text) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // a newer format is told by its version
  v1::TuningFile file;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &file, options);
  if (!parsed.ok()) return Damaged(path, FirstLine(parsed.message().as_string()));
  if (file.format_version() < 1) {
    return Damaged(path, "format_version=" + std::to_string(file.format_version()) + " is below 1");
  }
  return file;
}

Status Refuse(const std::string& path, const std::string& field, const std::string& theirs,
              const std::string& ours) {
  return FailedPrecondition(Named(path) + " does not hold here: " + field + "=" +
                            Printable(theirs) + ", where this server has " + ours);
}

Status CheckOrigin(const std::string& path, const v1::TuningFile& file, const std::string& build) {
  if (file.format_version() != kFormatVersion) {
    const bool newer = file.format_version() > kFormatVersion;
    return FailedPrecondition(Named(path) + " is of " + (newer ? "a newer" : "an older") +
                              " server: format_version=" + std::to_string(file.format_version()) +
                              " is " + (newer ? "above" : "below") + " the limit " +
                              std::to_string(kFormatVersion));
  }
  if (file.build() != build) return Refuse(path, "build", file.build(), build);
  return OkStatus();
}

Status CheckDevice(const std::string& path, const v1::TunedDevice& in, const DeviceTraits& traits) {
  const auto differ = [&](const char* field, int theirs, int ours) {
    if (theirs == ours) return OkStatus();
    return Refuse(path, field, std::to_string(theirs), std::to_string(ours));
  };
  if (in.device() != traits.name) return Refuse(path, "device", in.device(), traits.name);
  RETURN_IF_ERROR(differ("sm_count", in.sm_count(), traits.sm_count));
  RETURN_IF_ERROR(differ("compute_capability", in.compute_capability(), traits.compute_capability));
  return differ("driver_version", in.driver_version(), traits.driver_version);
}

// The planner of `in`; where there is none, why the first is not, or that of a device of its name.
StatusOr<TunedPlanner*> PlannerOf(const std::string& path, const v1::TunedDevice& in,
                                  const std::vector<TunedPlanner*>& planners) {
  Status why;
  for (TunedPlanner* const planner : planners) {
    const DeviceTraits& traits = planner->model().traits();
    Status status = CheckDevice(path, in, traits);
    if (status.ok()) return planner;
    if (why.ok() || traits.name == in.device()) why = std::move(status);
  }
  return why;
}

void Teach(const v1::TunedDevice& in, TunedPlanner& planner, LoadedTuning* loaded) {
  if (in.has_calibration()) {
    const Status status = planner.Calibrate(gemmd::FromProto(in.calibration()));
    if (status.ok()) ++loaded->calibrated;
    if (!status.ok() && loaded->calibration.ok()) {
      loaded->calibration =
          Status(status.code(), planner.model().traits().name + ": " + status.message());
    }
  }
  int learnt = 0;
  for (const v1::TunedProblem& problem : in.problems()) {
    std::optional<TuningEntry> entry = FromProto(problem);
    ++(entry && planner.Learn(*std::move(entry)) ? learnt : loaded->skipped);
  }
  if (planner.entries() == TuningTable::kMaxEntries) {
    const int dropped = std::max(0, learnt - static_cast<int>(TuningTable::kMaxEntries));
    loaded->dropped += dropped;
    learnt -= dropped;
  }
  loaded->problems += learnt;
}

v1::TunedDevice ToProto(const TunedPlanner& planner) {
  const DeviceTraits& traits = planner.model().traits();
  v1::TunedDevice out;
  out.set_device(traits.name);
  out.set_compute_capability(traits.compute_capability);
  out.set_sm_count(traits.sm_count);
  out.set_driver_version(traits.driver_version);
  for (const TuningEntry& entry : planner.Learnt()) *out.add_problems() = ToProto(entry);
  if (const std::optional<Calibration> calibration = planner.calibration()) {
    *out.mutable_calibration() = ToProto(*calibration);
  }
  return out;
}

std::string NowAsText() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[sizeof "2026-11-30T04:18:57Z"];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text, length};
}

}  // namespace

TuningFile::TuningFile(std::string path, std::string build)
    : path_(std::move(path)), build_(std::move(build)) {}

TuningFile::Version TuningFile::VersionOf(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .bytes = info.st_size,
          .seconds = info.st_mtim.tv_sec,
          .nanoseconds = info.st_mtim.tv_nsec};
}

std::optional<TuningFile::Version> TuningFile::VersionAt(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return VersionOf(info);
}

// Beside the file itself, so that all links to it have one lock, and not on it: a save replaces it.
Status TuningFile::Lock() {
  const StatusOr<std::string> target = FollowLinks(path_);
  const auto unlocked = [this](const std::string& why) {
    return Unavailable(Named(path_) + " cannot be locked: " + why);
  };
  if (!target.ok()) return unlocked(target.status().message());
  const std::string path = *target + ".lock";
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  // O_CREAT would be refused where another user has made it in a folder that all may write.
  int fd = open(path.c_str(), kFlags);
  if (fd < 0 && errno == ENOENT) fd = open(path.c_str(), kFlags | O_CREAT, kEverybodyReads);
  if (fd < 0) return unlocked(path + ": " + std::strerror(errno));
  lock_.emplace(fd);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    lock_.reset();
    if (error != EWOULDBLOCK) return unlocked(path + ": " + std::strerror(error));
    return FailedPrecondition(Named(path_) + " is in use by another process, which has locked " +
                              path + "; each server needs a file of its own");
  }
  return OkStatus();
}

StatusOr<LoadedTuning> TuningFile::Load(const std::vector<TunedPlanner*>& planners) {
  MutexLock lock(mu_);
  replaceable_.reset();
  struct stat info {};
  ASSIGN_OR_RETURN(const std::string text, ReadRegular(path_, MaxBytes(planners.size()), &info));
  ASSIGN_OR_RETURN(const v1::TuningFile file, Parse(path_, text));
  RETURN_IF_ERROR(CheckOrigin(path_, file, build_));
  LoadedTuning loaded;
  bool any = file.devices().empty();
  for (const v1::TunedDevice& device : file.devices()) {
    const StatusOr<TunedPlanner*> planner = PlannerOf(path_, device, planners);
    any = any || planner.ok();
    if (planner.ok()) {
      Teach(device, **planner, &loaded);
    } else if (loaded.device.ok()) {
      loaded.device = planner.status();
    }
  }
  if (!any) return loaded.device;
  const bool in_full =
      loaded.skipped == 0 && loaded.dropped == 0 && loaded.calibration.ok() && loaded.device.ok();
  if (in_full) replaceable_ = VersionOf(info);
  return loaded;
}

StatusOr<std::string> TuningFile::Text(const std::vector<const TunedPlanner*>& planners) const {
  v1::TuningFile file;
  file.set_format_version(kFormatVersion);
  file.set_build(build_);
  file.set_date(NowAsText());
  for (const TunedPlanner* const planner : planners) *file.add_devices() = ToProto(*planner);
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(file, &text, options);
  if (!printed.ok()) {
    return Internal(Named(path_) + " has no text: " + printed.message().as_string());
  }
  const int64_t most = MaxBytes(planners.size());
  if (static_cast<int64_t>(text.size()) > most) {
    return FailedPrecondition(Named(path_) + " would have " + std::to_string(text.size()) +
                              " bytes, more than the limit " + std::to_string(most));
  }
  return text;
}

Status TuningFile::Refuse(const Status& why) const {
  return FailedPrecondition(Named(path_) + ": " + why.message());
}

// Gives what is at `target`, if anything is, a name that nothing has.
Status TuningFile::KeepOld(const std::string& target) const {
  for (int i = 0; i < kMaxKept; ++i) {
    const std::string kept = target + ".old" + (i == 0 ? "" : "." + std::to_string(i));
    // A second name, so that at no time there is none.
    if (link(target.c_str(), kept.c_str()) == 0 || errno == ENOENT) return OkStatus();
    if (errno == EEXIST) continue;
    // Not every file system has two names for a file, and not to every file of others.
    if (renameat2(AT_FDCWD, target.c_str(), AT_FDCWD, kept.c_str(), RENAME_NOREPLACE) == 0) {
      return OkStatus();
    }
    if (errno == EEXIST) continue;
    return FailedPrecondition(Named(path_) + " is not of this server, and cannot be kept as " +
                              kept + ": " + std::strerror(errno));
  }
  return FailedPrecondition(Named(path_) + " is not of this server, and cannot be kept: " +
                            std::to_string(kMaxKept) + " old files beside it are the limit");
}

Status TuningFile::Save(const std::vector<const TunedPlanner*>& planners) {
  ASSIGN_OR_RETURN(const std::string text, Text(planners));
  MutexLock lock(mu_);
  const StatusOr<std::string> target = FollowLinks(path_);
  if (!target.ok()) return Refuse(target.status());
  const bool replaceable = replaceable_ && replaceable_ == VersionAt(*target);
  // What could not be read must not make the new one unreadable too.
  StatusOr<ReplacedFile> file =
      ReplacedFile::Create(*target, replaceable ? FileMode::kOfOld : FileMode::kNew);
  if (!file.ok()) return Refuse(file.status());
  Status status = file->Write(text.data(), static_cast<int64_t>(text.size()));
  if (!status.ok()) return Refuse(status);
  struct stat written {};
  if (fstat(file->fd(), &written) != 0) return Refuse(SystemError(path_, "look at"));
  if (!replaceable) {
    RETURN_IF_ERROR(KeepOld(*target));
    replaceable_ = VersionAt(*target);
  }
  status = file->Commit();
  if (VersionAt(*target) == VersionOf(written)) replaceable_ = VersionOf(written);
  return status.ok() ? status : Refuse(status);
}

}  // namespace gemmd

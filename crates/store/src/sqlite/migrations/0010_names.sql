-- Rows and events use the words of docs/glossary.md.
ALTER TABLE jobs RENAME COLUMN face TO metadata;

UPDATE assets
   SET doc = json_remove(json_set(doc, '$.about.metadata', doc -> '$.about.face'), '$.about.face')
 WHERE doc -> '$.about.face' IS NOT NULL;

UPDATE outbox
   SET doc = json_remove(json_set(doc, '$.kind.DeleteNode.failure', doc -> '$.kind.DeleteNode.fate'),
                         '$.kind.DeleteNode.fate')
 WHERE doc -> '$.kind.DeleteNode.fate' IS NOT NULL;

UPDATE events
   SET change = json_object('GovernanceChanged', change -> '$.EstateChanged')
 WHERE change -> '$.EstateChanged' IS NOT NULL;
UPDATE events
   SET change = json_object('JobMetadataChanged', json_object(
                    'job', change -> '$.JobFaceChanged.job', 'metadata', change -> '$.JobFaceChanged.face'))
 WHERE change -> '$.JobFaceChanged' IS NOT NULL;
UPDATE events
   SET change = json_remove(json_set(change, '$.AssetChanged.about.metadata', change -> '$.AssetChanged.about.face'),
                            '$.AssetChanged.about.face')
 WHERE change -> '$.AssetChanged.about.face' IS NOT NULL;
UPDATE events
   SET change = json_remove(json_set(change, '$.ActivityNoted.request', change -> '$.ActivityNoted.deed'),
                            '$.ActivityNoted.deed')
 WHERE change -> '$.ActivityNoted.deed' IS NOT NULL;
UPDATE events
   SET change = json_remove(json_set(change, '$.EffectQueued.kind.DeleteNode.failure',
                                     change -> '$.EffectQueued.kind.DeleteNode.fate'),
                            '$.EffectQueued.kind.DeleteNode.fate')
 WHERE change -> '$.EffectQueued.kind.DeleteNode.fate' IS NOT NULL;

"""Words by which the values of a column are recognised: languages, labels, hints in names."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ID_WORDS = _words(
    "id ids idx index uid uuid guid key hash sha sha1 md5 number no row line offset seed"
)
LENGTH_WORDS = _words("len length tokens token num n count chars words size turns")
MODEL_WORDS = _words("model models generator engine llm")
LANGUAGE_WORDS = _words("lang language langdetect locale")
LOWER_IS_BETTER = _words(
    "rank ranking toxicity toxic error errors loss perplexity ppl harm harmful harmfulness "
    "rejection refusal "
    "penalty cost distance risk"
)
"""Words in the name of a number of which the lower one is the better."""
GOLD = _words("reference ground truth gold golden expected")
"""Words in the name of a result that replies are compared with."""
NEGATIONS = _words("non not least less never un no")
"""Words that turn what the others of a name say into the opposite."""
SCORE_WORDS = _words("score scores rating rank reward")
SUCCESS_WORDS = _words(
    "passrate pass passed correct accuracy acc solve solved success successes winrate pass_rate"
)
"""Words in the name of a number that says how many of several replies are right, and not which."""
TIME_WORDS = _words("date time timestamp created updated year at ts")
"""Words of a column's name that confirm what its values allow, and decide nothing alone."""

LANGUAGES = _words("""
    aa ab af am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cs cu cv cy da de dv
    dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii
    ik io is it
    iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk
    ml mn mr ms
    mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc
    sd se sg si
    sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve
    vi vo wa wo
    xh yi yo za zh zu eng deu ger fra fre spa ita por rus jpn kor zho chi ara hin nld pol swe tur
    vie
    english german french spanish italian portuguese russian chinese japanese korean arabic hindi
    dutch
    polish swedish turkish vietnamese deutsch français español italiano português русский 中文 英文 日本語
    한국어 python java javascript typescript rust go c++ c# bash sql
""")
"""Codes and names of languages, in lower case; also of programming languages."""

GOOD = _words("""
    up 👍 👍🏻 👍🏼 👍🏽 ❤️ ❤ ✅ ✔ ✓ 😀 🙂 good yes y true t like liked positive pos pass passed correct right
    safe accept accepted chosen win better best helpful + +1 thumbs_up thumbsup gut ja richtig oui
    bon bien
    sí si bueno buono sim bom 好 是 对 正确 赞 喜欢 优 合格 满意 良い はい да хорошо
""")
BAD = _words("""
    down 👎 👎🏻 👎🏼 👎🏽 💔 ❌ ✖ ✗ 😞 🙁 bad no n false f dislike disliked negative neg fail failed
    incorrect wrong unsafe reject rejected loss worse worst unhelpful - -1 thumbs_down thumbsdown
    schlecht
    nein falsch non mauvais mal malo cattivo não mau ruim 坏 否 错 错误 踩 不喜欢 差 不合格 不满意
    不好 悪い いいえ нет плохо
""")
"""Texts that say in some languages that a reply was liked, or not: which of two labels is the good one.

A label needs none of them to be open; they only say how it would be read.
"""
TRUTH = _words(
    "yes y true t no n false f ja nein oui non sí si sim não 是 否 はい いいえ да нет + -"
)
"""Those of them that say only whether something is so, and not that it is good."""
PRAISE = _words(
    "accept accepted approve approved like liked upvote upvoted helpful useful satisfied thumb "
    "thumbs good "
    "safe harmless"
)
"""Words in the name of a column of which `yes` says that a reply was good."""

NAMES = {
    word: english
    for english, words in {
        "question": """pregunta preguntas pergunta perguntas frage fragen domanda domande вопрос
            вопросы
            问题 問題 質問 질문 سؤال السؤال pytanie pytania soru प्रश्न सवाल
            vraag vragen fråga otázka ερώτηση питання запитання pertanyaan คำถาม câu_hỏi spørgsmål
            kysymys
            kérdés întrebare pitanje שאלה سوال প্রশ্ন вопроса вопросов 提问 提問 疑問 設問 質問文 질의""",
        "prompt": """запрос запросы промпт 提示 提示词 提示詞 プロンプト 프롬프트 запит anfrage
            consulta
            подсказка 提示语 질의문 พรอมต์ yêu_cầu_người_dùng""",
        "instruction": """instruccion instrucción instrução instrucao anweisung istruzione
            istruzioni
            инструкция 指令 指示 지시 지시문 تعليمات التعليمات polecenie talimat निर्देश
            instructie instruktion instrukce pokyn οδηγία інструкція instruksi perintah คำสั่ง
            hướng_dẫn
            chỉ_dẫn câu_lệnh opdracht instrukcja instrucţiune utasítás инструкции указание 任务说明 命令
            指示文 명령""",
        "problem": """enunciado problema aufgabe esercizio задача 题目 題目 문제 مسألة zadanie énoncé
            enonce
            opgave probleem úloha πρόβλημα завдання soal โจทย์ bài_toán tarefa tarea compito 任务 課題
            과제 zadání""",
        "input": """entrada eingabe entrée entree ввод 输入 輸入 入力 입력 مدخل
            invoer indata vstup είσοδος вхід ввід masukan ข้อมูลนำเข้า đầu_vào इनपुट wejście girdi""",
        "output": """salida saída saida ausgabe sortie вывод 输出 輸出 出力 출력 مخرج
            uitvoer utdata výstup έξοδος вихід keluaran ผลลัพธ์ đầu_ra आउटपुट wyjście çıktı 出力文 결과""",
        "answer": """respuesta respuestas resposta respostas antwort antworten risposta risposte
            ответ
            ответы 回答 答案 答复 答覆 回复 回覆 応答 返答 解答 답변 대답 응답 답 جواب الجواب
            إجابة الإجابة اجابة réponse réponses reponse odpowiedź odpowiedz cevap yanıt उत्तर
            जवाब
            antwoord antwoorden svar odpověď απάντηση відповідь jawaban คำตอบ câu_trả_lời trả_lời
            phản_hồi
            उत्तर válasz răspuns odgovor תשובה পاسخ پاسخ الرد رد ответа ответом 回应 回應 回答例 模範解答
            模范答案 모범답안 답안
            정답 tanggapan balasan การตอบกลับ reactie ответное""",
        "solution": """solución solucion solução solucao lösung loesung soluzione решение 解法 풀이 حل
            rozwiązanie
            oplossing lösning řešení λύση розв'язання рішення solusi penyelesaian วิธีทำ lời_giải
            giải_pháp
            समाधान решения 题解 解题过程 解き方""",
        "context": """contexto kontext contexte contesto контекст 上下文 背景 文脈 文章 맥락 문맥 سياق
            السياق
            achtergrond sammanhang συμφραζόμενα bối_cảnh ngữ_cảnh konteks บริบท संदर्भ bağlam""",
        "text": """texto texte testo текст 文本 テキスト 텍스트 نص النص
            tekst texten κείμενο văn_bản teks ข้อความ पाठ metin besedilo""",
        "summary": """resumen resumo zusammenfassung résumé riassunto резюме 摘要 总结 要約 요약 ملخص
            samenvatting sammanfattning shrnutí περίληψη підсумок ringkasan สรุป tóm_tắt सारांश
            streszczenie
            özet""",
        "translation": """traducción traducao tradução übersetzung traduction traduzione перевод
            翻译 翻訳
            번역
            vertaling översättning překlad μετάφραση переклад terjemahan คำแปล bản_dịch dịch अनुवाद
            tłumaczenie çeviri""",
        "system": """sistema системный система системное 系统 系統 システム 시스템
            systeem σύστημα система hệ_thống ระบบ सिस्टम""",
        "reasoning": """razonamiento raciocínio raciocinio begründung raisonnement рассуждение 推理 思考
            추론 사고
            redenering resonemang uvažování συλλογισμός міркування penalaran lập_luận suy_luận
            เหตุผล तर्क
            рассуждения ход_мыслей gedachtegang rozumowanie""",
        "better": """mejor melhor besser bessere beste meilleur meilleure migliore лучший лучшая
            лучшее
            更好 较好 更优 优选 最佳 最好 良い 最良 좋은 최고 أفضل الأفضل lepsza lepszy
            beter bästa bättre lepší nejlepší καλύτερη καλύτερο краща кращий найкраща terbaik ดีกว่า
            ดีที่สุด tốt tốt_hơn tốt_nhất बेहतर iyi daha_iyi""",
        "chosen": """elegida elegido escolhida escolhido gewählt choisie choisi выбранный выбранная
            选中 選択 선택 选择
            gekozen vald vybraná vybraný επιλεγμένη обрана обраний dipilih terpilih ที่เลือก
            được_chọn चुना
            चयनित
            preferida preferido preferite preferita préférée préféré bevorzugt bevorzugte
            preferuojamas предпочтительный предпочтённый 首选 偏好 好ましい 선호
            المفضل المفضلة voorkeur föredragen""",
        "worse": """peor pior schlechter schlechtere schlechteste pire peggiore худший худшая худшее
            更差 较差 最差 悪い 劣る 나쁜 أسوأ الأسوأ gorsza gorszy
            slechter slechtste sämre sämst horší nejhorší χειρότερη χειρότερο гірша гірший
            terburuk buruk
            แย่กว่า แย่ที่สุด kém kém_hơn xấu tệ बदतर खराब kötü""",
        "rejected": """rechazada rechazado rejeitada rejeitado abgelehnt rejetée rejeté отвергнутый
            отклонённый отклоненный 拒绝 被拒绝 拒否 却下 거부 거절
            afgewezen avvisad zamítnutá odmítnutá απορριφθείσα відхилена відхилений ditolak
            ถูกปฏิเสธ
            bị_từ_chối bị_loại अस्वीकृत
            descartada descartado écartée écarté scartata scartato verworfen verworfene
            отброшенный 淘汰 舍弃 不採用 탈락 المرفوضة المرفوض verworpen""",
        "label": """etiqueta rótulo rotulo etikett étiquette etichetta метка 标签 標籤 ラベル 라벨
            레이블
            etikett štítek ετικέτα мітка nhãn ป้ายกำกับ लेबल""",
        "rating": """valoración valoracion avaliação avaliacao bewertung évaluation valutazione
            оценка
            评价 評価 评分 評分 평가 평점 점수 ocena تقييم التقييم
            beoordeling betyg hodnocení βαθμολογία оцінка penilaian nilai điểm đánh_giá คะแนน अंक
            रेटिंग
            puan""",
        "id": """番号 编号 編號 번호 номер número numero nummer رقم الرقم
            nummer αριθμός ลำดับ""",
        "model": "modelo modell modèle modello модель 模型 モデル 모델",
        "final": """definitiva definitivo endgültige finale финальный итоговый окончательный 最终 最終
            최종
            definitief slutlig konečná τελική остаточна остаточний akhir สุดท้าย cuối_cùng अंतिम""",
        "reference": """referencia referência referenz référence riferimento справочный 参考 參考 참고
            referentie referens αναφορά еталонна rujukan อ้างอิง tham_khảo संदर्भित""",
        "correct": """correcta correcto correta correto richtige richtig правильный верный 正确 正解
            정답
            juiste correcte rätt správná správný σωστή правильна правильний benar ที่ถูกต้อง đúng
            सही""",
        "winner": """winnaar vinnare vítěz νικητής переможець pemenang ผู้ชนะ người_thắng विजेता
            sieger gewinner
            ganador vencedor vincitore gagnant победитель 胜者 勝者 获胜者 勝ち 승자
            الفائز kazanan zwycięzca""",
        "user": """usuario usuário benutzer nutzer utilisateur utente пользователь 用户 用戶 ユーザー 사용자
            المستخدم
            gebruiker användare uživatel χρήστης користувач pengguna ผู้ใช้ người_dùng उपयोगकर्ता
            użytkownik
            kullanıcı""",
        "assistant": """asistente assistente assistent ассистент помощник 助手 アシスタント 어시스턴트 المساعد
            асистент asisten
            ผู้ช่วย trợ_lý सहायक""",
        "conversation": """conversación conversa gespräch conversazione диалог беседа 对话 對話 会話 대화
            محادثة المحادثة gesprek
            konversation rozhovor συνομιλία діалог percakapan บทสนทนา hội_thoại बातचीत rozmowa
            dialogo
            diálogo""",
    }.items()
    for word in words.split()
}
"""What other languages call the columns of questions, answers and verdicts, in small letters."""
COLUMN_NOUNS = _words(
    "question prompt instruction problem input output answer solution context text summary "
    "conversation "
)
"""Those of their meanings that say what a column is: last in English, elsewhere often first."""
TURN_WORDS = _words("turn position order index idx step seq sequence no number")
"""Words in the name of the place of a turn in its conversation."""
INSTRUCTING = _words("system developer système sistema системa система 系统 系統 システム 시스템")
MODELS = _words("""
    assistant gpt ai bot chatbot model agent chatgpt llm claude gemini operator support advisor
    adviser consultant
    rep representative staff helper doctor therapist counselor counsellor tutor teacher expert
    answerer
    responder specialist csr service helpdesk machine robot supporter berater beraterin
    mitarbeiter assistent assistente
    asistente agente operador operatore agent assistant conseiller консультант оператор ассистент
    бот модель помощник 助手
    客服 机器人 助理 模型 医生 アシスタント オペレーター ボット 担当者 モデル 어시스턴트 상담원
    상담사 챗봇 مساعد المساعد
    موظف الموظف وكيل सहायक एजेंट trợ_lý nhân_viên ผู้ช่วย asisten medewerker asistent asystent
    konsultant βοηθός помічник assistenten handläggare
    bot_response system_response
""")
"""What the side of the model is called, in several languages."""
USERS = _words("""
    user human prompter customer client visitor patient student caller guest member seeker asker
    questioner learner
    consumer buyer requester person kunde kundin nutzer benutzer usuario usuaria usuário cliente
    utilisateur utente
    клиент пользователь покупатель пациент человек 用户 用戶 客户 顾客 人类 患者 提问者 ユーザー
    お客様 顧客 利用者
    사용자 고객 환자 مستخدم المستخدم عميل العميل زبون उपयोगकर्ता ग्राहक người_dùng khách khách_hàng
    ผู้ใช้ ลูกค้า pengguna pelanggan
    gebruiker klant uživatel zákazník użytkownik klient χρήστης користувач användare kund
""")
"""What the side of the user is called, in several languages."""
NO_ANSWERS = _words("""
    starter stub skeleton signature formal lean isabelle coq buggy template hint rubric critique
    feedback test tests
    unittest unit testcase fixture setup import imports header boilerplate persona seed snippet
    placeholder
""")
"""Words in the names of texts that come with a task and answer nothing: starter code, a formal statement."""
